package nftables

import (
	"context"
	"net/netip"
	"slices"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// contents is what the kernel holds in one of our tables.
type contents struct {
	table                             nft.Table
	chains                            map[string]nft.Chain
	rules                             map[string][]uint64 // tags by chain
	frontends                         map[plan.Key]*programmed
	hairpins, clusterIPs, nodePortIPs []netip.Addr
	// junk are elements that cannot be anybody's.
	junk []op
}

// maxSlot bounds the index of a slot that is believed to be ours.
const maxSlot = 1 << 22

// readLayout tells whether the table has just the sets of our layout.
func readLayout(ctx context.Context, c *nft.Conn, l *layout, t nft.Table) (bool, error) {
	have, err := c.Sets(ctx, t)
	if err != nil {
		return false, err
	}
	want := l.sets()
	if len(have) != len(want) {
		return false, nil
	}
	for _, s := range want {
		i := slices.IndexFunc(have, func(i nft.SetInfo) bool { return i.Name == s.Name })
		if i < 0 || !s.Matches(have[i]) {
			return false, nil
		}
	}
	return true, nil
}

// readChains reads the chains of a table and the tags of their rules.
func readChains(ctx context.Context, c *nft.Conn, t nft.Table) (map[string]nft.Chain, map[string][]uint64, error) {
	list, err := c.Chains(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	chains := map[string]nft.Chain{}
	for _, ch := range list {
		chains[ch.Name] = ch
	}
	rules, err := c.Rules(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	tags := map[string][]uint64{}
	for _, r := range rules {
		tags[r.Chain] = append(tags[r.Chain], r.Tag)
	}
	return chains, tags, nil
}

// readContents reads all that is in a table of our layout, but for affinity.
func readContents(ctx context.Context, c *nft.Conn, l *layout, t nft.Table) (*contents, error) {
	k := &contents{table: t, frontends: map[plan.Key]*programmed{}}
	var err error
	if k.chains, k.rules, err = readChains(ctx, c, t); err != nil {
		return nil, err
	}
	r := &reader{layout: l, contents: k, names: map[string]string{}}
	for _, s := range l.sets() {
		read := r.forSet(s.Name)
		if read == nil {
			continue
		}
		err := c.Elements(ctx, t, s.Name, func(e *nft.Element) error {
			if !read(e) {
				k.junk = append(k.junk, op{set: s.Name, remove: true,
					element: nft.Element{Key: slices.Clone(e.Key), KeyEnd: slices.Clone(e.KeyEnd)}})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

// reader sorts elements into contents.
type reader struct {
	*layout
	*contents
	names map[string]string // one copy of each chain name
}

// forSet returns what takes in an element of the set and tells whether it can
// be ours.
func (r *reader) forSet(set string) func(*nft.Element) bool {
	switch set {
	case services, nodePorts:
		return r.verdict(set == nodePorts, func(p *programmed, v string, e *nft.Element) {
			p.verdict, p.packets, p.bytes = v, e.Packets, e.Bytes
		})
	case outside, nodePortOutside:
		return r.verdict(set == nodePortOutside, func(p *programmed, v string, _ *nft.Element) { p.outside = v })
	case sticky, nodePortSticky:
		return r.verdict(set == nodePortSticky, func(p *programmed, v string, _ *nft.Element) { p.sticky = v })
	case endpoints, nodePortEndpoints:
		return r.slot(set == nodePortEndpoints, func(p *programmed) *[]netip.AddrPort { return &p.slots })
	case localEndpoints, nodePortLocal:
		return r.slot(set == nodePortLocal, func(p *programmed) *[]netip.AddrPort { return &p.outsideSlots })
	case sources:
		return r.source
	case hairpin:
		return r.address(&r.hairpins, 2)
	case clusterIPs:
		return r.address(&r.clusterIPs, 1)
	case nodePortIPs:
		return r.address(&r.nodePortIPs, 1)
	}
	return nil // affinity: written by the packet path
}

func (r *reader) frontend(k plan.Key) *programmed {
	p := r.frontends[k]
	if p == nil {
		p = &programmed{}
		r.frontends[k] = p
	}
	return p
}

func (r *reader) verdict(nodePort bool, take func(*programmed, string, *nft.Element)) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k := d.frontend(nodePort)
		if !d.done() || e.Verdict == nil {
			return false
		}
		take(r.frontend(k), r.verdictName(e.Verdict), e)
		return true
	}
}

// verdictName names a verdict as programmed does. One that we never write gets
// a name that no chain can have, and will be replaced.
func (r *reader) verdictName(v *nft.Verdict) string {
	switch v.Code {
	case nft.DropCode:
		return dropName
	case nft.GotoCode:
		n, ok := r.names[v.Chain]
		if !ok {
			n = v.Chain
			r.names[n] = n
		}
		return n
	}
	return "?"
}

func (r *reader) slot(nodePort bool, slots func(*programmed) *[]netip.AddrPort) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		k, i := d.frontend(nodePort), d.index()
		v := r.decode(e.Data)
		ep := v.endpoint()
		if !d.done() || !v.done() || i > maxSlot {
			return false
		}
		s := slots(r.frontend(k))
		for len(*s) <= i {
			*s = append(*s, netip.AddrPort{})
		}
		(*s)[i] = ep
		return true
	}
}

func (r *reader) source(e *nft.Element) bool {
	d, last := r.decode(e.Key), r.decode(e.KeyEnd)
	k, from := d.frontend(false), d.addr()
	end, to := last.frontend(false), last.addr()
	if !d.done() || !last.done() || k != end {
		return false
	}
	for bits := r.addrLen * 8; bits >= 0; bits-- {
		if p := netip.PrefixFrom(from, bits); p.Masked() == p && lastAddr(p) == to {
			f := r.frontend(k)
			f.sources = append(f.sources, p)
			return true
		}
	}
	return false
}

func (r *reader) address(into *[]netip.Addr, copies int) func(*nft.Element) bool {
	return func(e *nft.Element) bool {
		d := r.decode(e.Key)
		ip := d.addr()
		for range copies - 1 {
			if d.addr() != ip {
				return false
			}
		}
		if !d.done() {
			return false
		}
		*into = append(*into, ip)
		return true
	}
}
