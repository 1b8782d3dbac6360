package explain

import (
	"fmt"
	"net/netip"

	"sluice/internal/base/printable"
	"sluice/internal/plan"
)

// parseSource parses a client's address, with its port or without.
func parseSource(s string) (netip.AddrPort, error) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), nil
	}
	ip, err := netip.ParseAddr(s)
	return netip.AddrPortFrom(ip.Unmap().WithZone(""), 0), err
}

// directStep says which node answers, and reports whether direct return decides that.
func (c *composer) directStep() bool {
	way, direct := c.decision.Way()
	if !direct {
		return false
	}
	d, p := c.decision.Frontend.Direct, &c.packet
	c.answer.Direct = &DirectAnswer{Node: way.Node, Ordinary: way.Ordinary}
	by, example := "address and port", "an IP and port, such as 203.0.113.9:40000,"
	if d.ByAddress {
		by, example = "address", "an IP"
	}
	switch {
	case way.Node == "":
		c.step("direct return", "%s; ask with --from and %s to know which", d.Text(), example)
		for _, n := range way.Others {
			c.step("not used", "node %s: its clients get any endpoint, masqueraded", n)
		}
		return true
	case len(d.Nodes) == 1:
		c.step("direct return", "all endpoints are on node %s", way.Node)
	default:
		slot := d.Slot(netip.AddrPortFrom(p.Source, p.SourcePort))
		c.answer.Direct.Slot = &slot
		c.step("direct return", "by the client's %s, slot %d of %d, which is node %s", by, slot, plan.DirectSlots, way.Node)
	}
	if !way.Here {
		c.answer.Direct.Path = way.State.String()
	}
	switch {
	case way.Here && way.Ordinary:
		c.step("way", "any endpoint, masqueraded: this node has none to use")
	case way.Here:
		c.step("way", "an endpoint of this node")
	case way.Ordinary:
		c.step("way", "any endpoint, masqueraded: node %s is not used, because %s", way.Node, plan.PathText(way.State))
	default:
		c.step("way", "packets are handed to node %s as they are, before connections are tracked here, and it answers the client directly", way.Node)
	}
	return true
}

// directSummary says in a few words where the connection goes, "" if direct return does not decide it.
func (c *composer) directSummary() string {
	way, direct := c.decision.Way()
	if !direct {
		return ""
	}
	all := printable.Count(len(c.decision.Route.Endpoints), "endpoint")
	switch {
	case way.Node == "":
		return fmt.Sprintf("reaches one of %s, on the node of the client's slot, which answers directly", all)
	case way.Ordinary:
		return fmt.Sprintf("reaches one of %s through this node: node %s cannot be used for direct return", all, way.Node)
	case way.Here:
		return "this client's connections stay on this node, which answers directly"
	}
	return fmt.Sprintf("this client's connections go to node %s, which answers directly", way.Node)
}
