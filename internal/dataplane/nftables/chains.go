package nftables

import (
	"iter"

	"sluice/internal/kernel/nft"
)

// chains mirrors the table's chains, which have reference counts: a chain is needed
// while a frontend or another chain leads to it.
type chains struct {
	refs  map[chain]int
	names map[chain]string
	// present are the chains in the kernel that are ours, with the tags of their
	// rules.
	present map[chain][]uint64
	// foreign are chains in the kernel that are not needed and that we did not write.
	// They can lead to each other, so they are flushed before the first is removed;
	// emptied are those that are flushed.
	foreign, emptied map[string]struct{}
	// rewrite are chains whose rules must be written again.
	rewrite map[chain]struct{}
	// fresh and stale are the chains that came into use and went out of use since
	// the mirror and the kernel last agreed. In fresh, chains come after those that
	// they lead to.
	fresh, stale []chain
	// adding and removing count the chains of the last batch; the other three are
	// those that it rewrites, flushes and deletes.
	adding, removing   int
	rewriting          []chain
	emptying, deleting []string
}

func newChains() *chains {
	return &chains{
		refs:    map[chain]int{},
		names:   map[chain]string{},
		present: map[chain][]uint64{},
		foreign: map[string]struct{}{},
		emptied: map[string]struct{}{},
		rewrite: map[chain]struct{}{},
	}
}

// real reports whether it is a chain: drop is only a verdict.
func (c chain) real() bool { return c.kind != noChain && c.kind != drop }

func (c chain) base() bool { return c.kind != noChain && c.kind <= rememberInput }

// name caches chain.name, which every frontend needs.
func (s *chains) name(c chain) string {
	if c.kind == noChain {
		return ""
	}
	n, ok := s.names[c]
	if !ok {
		n = c.name()
		s.names[c] = n
	}
	return n
}

func (s *chains) hold(c chain) {
	if !c.real() {
		return
	}
	n := s.refs[c] + 1
	if s.refs[c] = n; n > 1 {
		return
	}
	for _, to := range c.leadsTo() {
		s.hold(to)
	}
	s.fresh = append(s.fresh, c)
}

func (s *chains) release(c chain) {
	if !c.real() {
		return
	}
	if s.refs[c]--; s.refs[c] > 0 {
		return
	}
	delete(s.refs, c)
	s.stale = append(s.stale, c)
	for _, to := range c.leadsTo() {
		s.release(to)
	}
}

func (s *chains) found(c chain, tags []uint64) { s.present[c] = tags }

// lost records that other programs removed chains.
func (s *chains) lost(gone map[chain]struct{}) {
	var visit func(chain)
	visit = func(c chain) {
		if _, is := gone[c]; !is {
			return
		}
		delete(gone, c)
		for _, to := range c.leadsTo() { // before c, as in hold
			visit(to)
		}
		delete(s.present, c)
		delete(s.rewrite, c)
		s.fresh = append(s.fresh, c)
	}
	for c := range gone {
		visit(c)
	}
}

// missing yields the chains that are needed and not in the kernel, after those that
// they lead to.
func (s *chains) missing() iter.Seq[chain] {
	return func(yield func(chain) bool) {
		seen := map[chain]bool{}
		for _, c := range s.fresh {
			_, there := s.present[c]
			if s.refs[c] == 0 || there || seen[c] {
				continue
			}
			seen[c] = true
			if !yield(c) {
				return
			}
		}
	}
}

// missingOrdinary yields those of missing that are no base chains.
func (s *chains) missingOrdinary() iter.Seq[chain] {
	return func(yield func(chain) bool) {
		for c := range s.missing() {
			if !c.base() && !yield(c) {
				return
			}
		}
	}
}

// surplus yields our chains in the kernel that are no longer needed, before those that
// they lead to.
func (s *chains) surplus() iter.Seq[chain] {
	return func(yield func(chain) bool) {
		seen := map[chain]bool{}
		for _, c := range s.stale {
			_, there := s.present[c]
			if s.refs[c] > 0 || !there || seen[c] {
				continue
			}
			seen[c] = true
			if !yield(c) {
				return
			}
		}
	}
}

// removed records that the last batch took effect.
func (s *chains) removed() {
	for _, name := range s.emptying {
		delete(s.foreign, name)
		s.emptied[name] = struct{}{}
	}
	for _, name := range s.deleting {
		delete(s.emptied, name)
	}
	s.emptying, s.deleting = nil, nil
	for c := range s.surplus() {
		if s.removing--; s.removing < 0 {
			break
		}
		delete(s.present, c)
		delete(s.names, c)
	}
	s.removing = 0
	if nft.CountUpTo(s.surplus(), 1) == 0 && nft.CountUpTo(s.missing(), 1) == 0 {
		s.fresh, s.stale = nil, nil
	}
}
