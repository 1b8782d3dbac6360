package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/test/lab"
)

// knownDifference is an intended difference in what happens to a packet. The name
// is that of its line in docs/semantics.md, under "Where upstream differs", which
// gives the reason.
type knownDifference struct {
	name     string
	mode     string // of upstream
	explains func(c *contest, a attempt, theirs, ours outcomes) bool
}

var knownDifferences = []knownDifference{
	{"no-endpoints-from-node", "iptables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		return a.From == "node1" && !c.isNodes(a.packet.Destination) && a.verdict.Action == oracle.Reject &&
			theirs.only(string(lab.Passed)) && ours.only(refusedByRule)
	}},
	{"no-endpoints-on-other-addresses", "iptables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		return c.isNodes(a.packet.Destination) && a.verdict.Action == oracle.Pass && c.isNodePort(a.packet) &&
			(theirs.only(refusedByRule) || theirs.only(string(lab.Dropped))) &&
			len(ours) == 1 && strings.HasPrefix(ours.String(), string(lab.Refused)) // by the machine: nothing listens there
	}},
	{"hairpin-on-other-nodes", "nftables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		itself := slices.ContainsFunc(a.verdict.Endpoints, func(e netip.AddrPort) bool { return e.Addr() == a.packet.Source })
		return itself && c.lanes[0].lab.Owner(a.packet.Source).Node != "node1" &&
			theirs[string(lab.Dropped)] &&
			maps.Equal(theirs.without(string(lab.Dropped)), ours.without(a.From+":").without(string(lab.Dropped)))
	}},
	{"external-ip-that-is-a-cluster-ip", "nftables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		owner := slices.IndexFunc(c.present().Services, func(s *model.Service) bool {
			return slices.Contains(s.ClusterIPs, a.packet.Destination)
		})
		return owner >= 0 && c.present().Services[owner].Name != a.verdict.Service && maps.Equal(theirs.endpoints(), ours.endpoints())
	}},
	{"no-endpoints-where-an-endpoint-is", "", func(c *contest, a attempt, theirs, ours outcomes) bool {
		there := slices.IndexFunc(a.verdict.Endpoints, func(e netip.AddrPort) bool {
			at := oracle.Packet{Source: a.packet.Source, Destination: e.Addr(), Protocol: a.packet.Protocol, Port: e.Port()}
			return oracle.Decide(c.present(), at).Action == oracle.Reject
		})
		if there < 0 {
			return false
		}
		host := c.lanes[0].lab.Owner(a.verdict.Endpoints[there].Addr()).Name
		return theirs[refusedByRule] && maps.Equal(theirs.without(refusedByRule), ours.without(host+":"))
	}},
	{"source-ranges-of-an-external-ip", "iptables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		s := c.service(a.verdict.Service)
		return s != nil && s.Filtered && slices.Contains(s.ExternalIPs, a.packet.Destination) &&
			slices.Contains(s.LoadBalancerIPs, a.packet.Destination) && theirs.answered() && ours.only(string(lab.Dropped))
	}},
	{"source-ranges-without-endpoints", "iptables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		open := c.present()
		for i, s := range open.Services {
			unfiltered := *s
			unfiltered.Filtered = false
			open.Services[i] = &unfiltered
		}
		return a.verdict.Action == oracle.Drop && oracle.Decide(open, a.packet).Action == oracle.Reject && ours.only(string(lab.Dropped)) &&
			(theirs.only(refusedByRule) || a.From == "node1" && theirs.only(string(lab.Passed)))
	}},
	{"service-cidrs-late", "nftables", func(c *contest, a attempt, theirs, ours outcomes) bool {
		owned := slices.ContainsFunc(c.present().Services, func(s *model.Service) bool {
			return slices.Contains(s.ClusterIPs, a.packet.Destination)
		})
		inRange := slices.ContainsFunc(c.topology.ServiceCIDR, func(p netip.Prefix) bool { return p.Contains(a.packet.Destination) })
		dropped, passed := string(lab.Dropped), string(lab.Passed)
		return inRange && !owned && (theirs.only(dropped) && ours.only(passed) || theirs.only(passed) && ours.only(dropped))
	}},
	{"source-ranges-malformed", "", func(c *contest, a attempt, theirs, ours outcomes) bool {
		s := c.service(a.verdict.Service)
		return s != nil && s.Filtered && len(s.SourceRanges) == 0 && slices.Contains(s.LoadBalancerIPs, a.packet.Destination) &&
			ours.only(string(lab.Dropped))
	}},
}

// known names the documented difference that two sets of outcomes show, or is empty.
func (c *contest) known(a attempt, theirs, ours outcomes) string {
	for _, k := range knownDifferences {
		if (k.mode == "" || k.mode == c.mode) && k.explains(c, a, theirs, ours) {
			return k.name
		}
	}
	return ""
}

// refusedByRule is the outcome of an attempt that a rule refuses.
const refusedByRule = "refused: connection refused"

// isNodes reports whether an address is node1's.
func (c *contest) isNodes(a netip.Addr) bool {
	return slices.Contains(c.topology.NodeIPs, a) || slices.Contains(localByRoute, a)
}

// isNodePort reports whether a packet would match a node port, if its address were
// a node port address.
func (c *contest) isNodePort(p oracle.Packet) bool {
	return slices.ContainsFunc(c.present().Services, func(s *model.Service) bool {
		return slices.ContainsFunc(s.Ports, func(port model.ServicePort) bool {
			return port.NodePort == p.Port && port.Protocol == p.Protocol
		})
	})
}

func (c *contest) service(name model.Name) *model.Service {
	for _, s := range c.present().Services {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// only reports whether that is the only outcome.
func (f outcomes) only(what string) bool { return len(f) == 1 && f[what] }

// without leaves out the outcomes with a prefix.
func (f outcomes) without(prefix string) outcomes {
	out := maps.Clone(f)
	maps.DeleteFunc(out, func(what string, _ bool) bool { return strings.HasPrefix(what, prefix) })
	return out
}

// endpoints leaves out the sources that endpoints saw.
func (f outcomes) endpoints() outcomes {
	out := outcomes{}
	for what := range f {
		endpoint, _, _ := strings.Cut(what, " sees ")
		out[endpoint] = true
	}
	return out
}

func TestKnownDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(text), "## Where upstream differs")
	for _, k := range knownDifferences {
		mode := cmp.Or(k.mode, "both")
		if !strings.Contains(lines, "\n| `"+k.name+"` | "+mode+" |") {
			t.Errorf("docs/semantics.md does not say how upstream differs in %s, in mode %s", k.name, mode)
		}
	}
}
