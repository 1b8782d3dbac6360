package status

import (
	"cmp"
	"slices"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// DirectReturn is what of direct return works on the node.
type DirectReturn struct {
	// Device is as configured: auto for that which has the node's address.
	Device string `json:"device"`
	// Frontends are those with direct return.
	Frontends int `json:"frontends"`
	// Nodes counts the other nodes by what is known of the way to them, for each family.
	Nodes map[string]map[string]int `json:"nodes"`
	// Used says in words how many are used.
	Used string `json:"used"`
	// NotUsed are the first of those that packets are not handed to.
	NotUsed []NodeNotUsed `json:"notUsed,omitempty"`
	// Received are the first of those that handed connections to this one, who handed most first.
	Received []NodeReceived `json:"received,omitempty"`
}

// NodeReceived is how many connections another node has handed to this one.
type NodeReceived struct {
	Name        string `json:"name"`
	Connections uint64 `json:"connections"`
}

// NodeNotUsed is a node that packets of a family are not handed to.
type NodeNotUsed struct {
	Name   string `json:"name"`
	Family string `json:"family"`
	Path   string `json:"path"` // a word
	Reason string `json:"reason"`
}

// readDirect reads it from what is desired, nil where it is switched off.
func readDirect(d *plan.Desired) *DirectReturn {
	r := d.Settings.DirectReturn
	if r == nil {
		return nil
	}
	out := &DirectReturn{Device: r.Device, Used: r.Text(), Nodes: map[string]map[string]int{}}
	if out.Device == "" {
		out.Device = "auto"
	}
	for _, f := range d.Frontends {
		if f.Direct != nil {
			out.Frontends++
		}
	}
	for _, f := range model.Families {
		byState := r.Count(f)
		if len(byState) == 0 {
			continue
		}
		out.Nodes[f.String()] = map[string]int{}
		for state, n := range byState {
			out.Nodes[f.String()][state.String()] = n
		}
		for i := range r.Nodes {
			n := &r.Nodes[i]
			if p := n.Path(f); !n.Self && p.Addr.IsValid() && !n.Usable(f) && len(out.NotUsed) < maxProblems {
				out.NotUsed = append(out.NotUsed, NodeNotUsed{n.Name, f.String(), p.State.String(), plan.PathText(p.State)})
			}
		}
	}
	return out
}

// addReceived adds how many connections other nodes have handed to this one.
func (r *DirectReturn) addReceived(connections map[string]uint64) {
	for name, n := range connections {
		if n > 0 {
			r.Received = append(r.Received, NodeReceived{name, n})
		}
	}
	slices.SortFunc(r.Received, func(a, b NodeReceived) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Name, b.Name))
	})
	r.Received = r.Received[:min(len(r.Received), maxProblems)]
}

// maxNotUsed is how many nodes that are not used the text names, and of those that hand it connections.
const maxNotUsed = 5

func (t *text) direct(d *DirectReturn) {
	if d == nil {
		return
	}
	t.row("direct return", "%s through %s, handed to %s", printable.Count(d.Frontends, "frontend"), d.Device, d.Used)
	if len(d.Received) > 0 {
		t.row("", "received: %s", printable.ListFirst(d.Received, maxNotUsed, ", ", func(n NodeReceived) string {
			return printable.Count(int(n.Connections), "connection") + " from " + n.Name
		}))
	}
	for i, n := range d.NotUsed {
		if i == maxNotUsed {
			t.row("", "and more; --json lists up to %d", maxProblems)
			return
		}
		t.row("", "not %s (%s): %s", n.Name, n.Family, n.Reason)
	}
}
