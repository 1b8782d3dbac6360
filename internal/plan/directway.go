package plan

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/model"
)

// DirectWay is the way of a connection of a client outside to a frontend with direct return.
type DirectWay struct {
	// Node is the node of the client's slot; empty if that depends on what of the client is not known.
	Node string
	// Here says that it is this node, and State how good the way to it is otherwise.
	Here  bool
	State model.PathState
	// Ordinary says that the connection takes the route of the frontend, masqueraded: the node cannot be used,
	// or is this one and has no endpoint now. If the node is not known, it says that one of them is such.
	Ordinary bool
	// Others are the nodes that cannot be used, if Node is not known.
	Others []string
}

// Way returns the way that a connection takes, and whether direct return decides it.
func (c *Decision) Way() (w DirectWay, decides bool) {
	f := c.Frontend
	if f == nil || f.Direct == nil || c.settings.DirectReturn == nil || c.Packet.From != OutsideClient || c.Loopback || c.Verdict != Forward {
		return DirectWay{}, false
	}
	source := c.Packet.Source
	if source.IsValid() && (f.Direct.ByAddress || c.Packet.SourcePort != 0) {
		return c.wayTo(f.Direct.Node(netip.AddrPortFrom(source, c.Packet.SourcePort))), true
	}
	for _, n := range f.Direct.Nodes {
		if way := c.wayTo(n.Name); way.Ordinary {
			w.Ordinary = true
			w.Others = append(w.Others, n.Name)
		}
	}
	if len(f.Direct.Nodes) == 1 {
		return c.wayTo(f.Direct.Nodes[0].Name), true
	}
	return w, true
}

// wayTo is the way if a node has the slot.
func (c *Decision) wayTo(name string) DirectWay {
	w := DirectWay{Node: name}
	nodes := c.settings.DirectReturn.Nodes
	at, known := slices.BinarySearchFunc(nodes, name, func(n DirectNode, name string) int { return strings.Compare(n.Name, name) })
	switch {
	case !known:
		w.Ordinary = true
	case nodes[at].Self:
		w.Here, w.Ordinary = true, c.Frontend.Direct.Local == nil
	default:
		family := c.Frontend.Family()
		w.State, w.Ordinary = nodes[at].Path(family).State, !nodes[at].Usable(family)
	}
	return w
}

func directCause(w DirectWay) MasqueradeCause {
	switch {
	case !w.Ordinary:
		return NodeAnswers
	case w.Node == "":
		return SomeNodesAnswer
	}
	return NodeCannotAnswer
}

// PathText says what is known of the way to a node.
func PathText(s model.PathState) string {
	return [...]string{
		model.PathUnknown:  "nobody has tried yet whether packets reach it",
		model.PathProven:   "a probe went there and came back",
		model.PathOffLink:  "its address is not on the link of the device: packets would have to be routed",
		model.PathNoMAC:    "it does not answer on the link",
		model.PathSilent:   "it does not answer probes: direct return is off there, or something drops them",
		model.PathFiltered: "what it sends with an address that is not its own does not arrive: the network drops it",
	}[s]
}
