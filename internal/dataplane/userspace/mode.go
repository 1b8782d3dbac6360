//go:build linux

package userspace

import (
	"io"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Mode is proxy mode userspace.
var Mode = dataplane.Mode{
	Name:   "userspace",
	Open:   open,
	Render: Render,
	Remove: nftables.Remove,
	Adjust: func(c *plan.Config) {
		c.DropInvalid = false
		c.Algorithms = model.NewAlgorithms(model.RoundRobin, model.SourceHash, model.Maglev)
		c.DefaultAlgorithm = model.RoundRobin
		c.ProxyConnects = true
		c.CanEject = true
	},
	// Upstream's had no section of its own: it was configured with that of iptables.
	Configuration: dataplane.Configuration{
		Section:           "iptables",
		MasqueradeSection: "iptables",
		PortRange:         true,

		LocalhostNodePorts: true,
	},
	Counters:       metrics,
	BesideIPTables: true,
	Named:          true,
}

// Render writes the table as nft(8) lists it. The same input always gives the same
// text, so the ports, which are chosen when the proxy starts, are 0.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	const note = "# The proxy itself forwards connections. In place of port 0 are those on which it listens.\n"
	if _, err := io.WriteString(w, note); err != nil {
		return err
	}
	target := newTarget(func(f model.Family) *sockets {
		if ip := desired.Settings.ProxyIP(f); ip.IsValid() {
			return &sockets{addr: ip}
		}
		return nil
	})
	return nftables.RenderWith(target, w, desired, o)
}

// ports tell the proxy what it cannot see of a connection: whether it takes the route Outside,
// and whether it is masqueraded, by the proxy and not by the table.
type ports [4]uint16

func (p *ports) of(outside, masquerade bool) *uint16 {
	i := 0
	if outside {
		i |= 1
	}
	if masquerade {
		i |= 2
	}
	return &p[i]
}

// newTarget returns the target that leads connections to the proxy, at the sockets of a family;
// nil if there are none.
func newTarget(at func(model.Family) *sockets) *nftables.Target {
	return &nftables.Target{
		Name:  "relay",
		Input: nft.Chain{Name: "relay-input", Type: "filter", Hook: unix.NF_INET_LOCAL_IN},
		Rules: func(f model.Family, s *plan.Settings) nftables.TargetRules {
			to := at(f)
			if to == nil {
				return nftables.TargetRules{}
			}
			mark := s.MasqueradeMark
			return nftables.TargetRules{Route: to.redirect(false, mark), Outside: to.redirect(true, mark), Input: to.protect()}
		},
	}
}

var anyPacket nft.Exprs

// redirect returns the rules for one of a frontend's routes.
func (s *sockets) redirect(outside bool, mark uint32) []nft.Rule {
	dnat := func(match nft.Exprs, masquerade bool) nft.Rule {
		return nft.Rule{Exprs: match.DNAT(netip.AddrPortFrom(s.addr, *s.ports.of(outside, masquerade))), Protocols: true}
	}
	return []nft.Rule{dnat(anyPacket.HasMark(mark).FlipMark(mark), true), dnat(anyPacket, false)}
}

// protect returns rules that drop what was not led to the proxy but addressed to it.
func (s *sockets) protect() []nft.Rule {
	dest := nft.DestIP4
	if s.addr.Is6() {
		dest = nft.DestIP6
	}
	toProxy := anyPacket.New().Within(dest, netip.PrefixFrom(s.addr, s.addr.BitLen()))
	rules := []nft.Rule{{Exprs: anyPacket.New().DNATed().Accept()}}
	for _, port := range s.ports {
		rules = append(rules, nft.Rule{Exprs: toProxy.ToPort(port).Drop()})
	}
	return rules
}
