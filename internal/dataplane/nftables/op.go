//go:build linux

package nftables

import (
	"net/netip"
	"slices"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// op is the change of one element: it is added, removed, or replaced atomically.
type op struct {
	set         string
	element     nft.Element
	remove, add bool
}

// opWriter collects operations. Those of a frontend are in an order in which each one
// leaves a working frontend: first what the verdict needs, then the verdict, then what
// it no longer needs.
type opWriter struct {
	arena arena
	ops   []op
}

func newOpWriter() *opWriter { return &opWriter{} }

// reset discards all operations and reuses their memory.
func (w *opWriter) reset() {
	clear(w.ops)
	w.ops = w.ops[:0]
	w.arena.reset()
}

func (w *opWriter) put(set string, key []byte, e nft.Element, had, want bool) {
	e.Key = key
	w.ops = append(w.ops, op{set: set, element: e, remove: had, add: want})
}

// difference appends the operations that change old to new. Either may be nil.
func (w *opWriter) difference(k plan.Key, old, new *programmed) {
	if old == nil {
		old = &programmed{}
	}
	if new == nil {
		new = &programmed{}
	}
	m := mapsOf(k)
	w.fillSlots(m.slots, k, old.slots, new.slots)
	w.fillSlots(m.outsideSlots, k, old.outsideSlots, new.outsideSlots)
	w.eachSource(k, new.sources, old.sources, false)
	w.setFilter(k, new.filters && !old.filters, false)
	w.setRecall(m.recall, k, old.recall, new.recall)
	w.setVerdict(m.sticky, k, old.sticky, new.sticky, nil)
	if k.IsRange() {
		w.setBlocks(&outsideBlocks, k, old.outsideBlocks, new.outsideBlocks, old.outside, new.outside, nil)
		w.setBlocks(&rangeBlocks, k, old.blocks, new.blocks, old.verdict, new.verdict, old)
		w.removeBlocks(&rangeBlocks, k, old.blocks, new.blocks)
		w.removeBlocks(&outsideBlocks, k, old.outsideBlocks, new.outsideBlocks)
	} else {
		w.setVerdict(m.outside, k, old.outside, new.outside, nil)
		w.setVerdict(m.verdict, k, old.verdict, new.verdict, old)
		w.removeVerdict(m.verdict, k, old.verdict, new.verdict)
		w.removeVerdict(m.outside, k, old.outside, new.outside)
	}
	w.removeVerdict(m.sticky, k, old.sticky, new.sticky)
	w.removeVerdict(m.recall, k, old.recall, new.recall)
	w.setFilter(k, old.filters && !new.filters, true)
	w.eachSource(k, old.sources, new.sources, true)
	w.emptySlots(m.outsideSlots, k, old.outsideSlots, len(new.outsideSlots))
	w.emptySlots(m.slots, k, old.slots, len(new.slots))
}

// frontendMaps are the names of the maps that a frontend has elements in.
type frontendMaps struct{ verdict, outside, recall, sticky, slots, outsideSlots, sources, filters string }

// The maps of frontends, by how their keys say which. Ranges have no session affinity, and blocks for the
// verdicts.
var mapsOfKind = [...]frontendMaps{
	byAddress:  {services, outside, recalls, sticky, endpoints, localEndpoints, sources, filters},
	byNodePort: {nodePorts, nodePortOutside, nodePortRecalls, nodePortSticky, nodePortEndpoints, nodePortLocal, sources, filters},
	byRange:    {slots: rangeEndpoints, outsideSlots: rangeLocalEndpoints, sources: rangeSources, filters: rangeFilters},
}

// maps are those of the chain's frontends.
func (c chain) maps() frontendMaps {
	switch {
	case c.nodePort:
		return mapsOfKind[byNodePort]
	case c.ranged():
		return mapsOfKind[byRange]
	}
	return mapsOfKind[byAddress]
}

func mapsOf(k plan.Key) frontendMaps {
	if isPool(k) {
		return frontendMaps{slots: pools}
	}
	return mapsOfKind[kindOf(k)]
}

func (w *opWriter) fillSlots(set string, k plan.Key, old, new []netip.AddrPort) {
	for i, ep := range new {
		had := i < len(old) && old[i].IsValid()
		if had && old[i] == ep {
			continue
		}
		w.put(set, w.arena.slotKey(k, i), nft.Element{Data: w.arena.target(k, ep)}, had, true)
	}
}

func (w *opWriter) emptySlots(set string, k plan.Key, old []netip.AddrPort, from int) {
	for i := from; i < len(old); i++ {
		if old[i].IsValid() {
			w.put(set, w.arena.slotKey(k, i), nft.Element{}, true, false)
		}
	}
}

// eachSource adds or removes those ranges of these that are not in those.
func (w *opWriter) eachSource(k plan.Key, these, those []netip.Prefix, remove bool) {
	if slices.Equal(these, those) {
		return
	}
	known := prefixSet(those)
	for _, p := range these {
		if _, ok := known[p]; !ok {
			w.put(mapsOf(k).sources, w.arena.sourceKey(k, p), nft.Element{}, remove, !remove)
		}
	}
}

// prefixSet returns a set: there can be thousands of prefixes.
func prefixSet(list []netip.Prefix) map[netip.Prefix]struct{} {
	set := make(map[netip.Prefix]struct{}, len(list))
	for _, p := range list {
		set[p] = struct{}{}
	}
	return set
}

// setFilter adds or removes the element that drops and counts what is not admitted.
func (w *opWriter) setFilter(k plan.Key, differs, remove bool) {
	if differs {
		e := nft.Element{Verdict: verdictTo(dropName)}
		if k.IsRange() {
			e.Verdict = nil // it is in a set
		}
		w.put(mapsOf(k).filters, w.arena.filterKey(k), e, remove, !remove)
	}
}

// setVerdict adds or replaces a verdict. If it is replaced, its counter continues.
func (w *opWriter) setVerdict(set string, k plan.Key, old, new string, counted *programmed) {
	if new == "" || new == old {
		return
	}
	e := nft.Element{Verdict: verdictTo(new)}
	if counted != nil {
		e.Packets, e.Bytes = counted.packets, counted.bytes
	}
	w.put(set, w.arena.frontendKey(k), e, old != "", true)
}

// setRecall adds or replaces the element for remembered clients. It is a jump, which
// returns for clients that are not remembered.
func (w *opWriter) setRecall(set string, k plan.Key, old, new string) {
	if new != "" && new != old {
		e := nft.Element{Verdict: &nft.Verdict{Code: nft.JumpCode, Chain: new}}
		w.put(set, w.arena.frontendKey(k), e, old != "", true)
	}
}

func (w *opWriter) removeVerdict(set string, k plan.Key, old, new string) {
	if old != "" && new == "" {
		w.put(set, w.arena.frontendKey(k), nft.Element{}, true, false)
	}
}

func verdictTo(name string) *nft.Verdict {
	switch name {
	case dropName:
		return &nft.Verdict{Code: nft.DropCode}
	case passName:
		return &nft.Verdict{Code: nft.AcceptCode}
	}
	return nft.Goto(name)
}
