package nftables

import (
	"iter"

	"sluice/internal/nft"
)

// chains keeps account of the table's chains: who leads to each, and what the
// kernel has. A chain is there while somebody leads to it.
type chains struct {
	refs  map[chain]int
	names map[chain]string
	// present are the kernel's chains that are ours to know, with the tags of
	// their rules.
	present map[chain][]uint64
	// strangers are names of the kernel's chains that nobody wants. They can lead to
	// each other: all are emptied before the first goes.
	strangers, emptied map[string]struct{}
	// rewrite are chains whose rules must be written again.
	rewrite map[chain]struct{}
	// fresh and stale are the chains that came into use and went out of use
	// since the kernel was last brought in line. What a chain leads to comes
	// before it in fresh.
	fresh, stale []chain
	// adding and removing are how many chains were written last, and the other three
	// which ones: rewritten, emptied and deleted.
	adding, removing   int
	rewriting          []chain
	emptying, deleting []string
}

func newChains() *chains {
	return &chains{
		refs:      map[chain]int{},
		names:     map[chain]string{},
		present:   map[chain][]uint64{},
		strangers: map[string]struct{}{},
		emptied:   map[string]struct{}{},
		rewrite:   map[chain]struct{}{},
	}
}

// real tells whether there is such a chain: drop is a verdict without one.
func (c chain) real() bool { return c.kind != noChain && c.kind != drop }

func (c chain) base() bool { return c.kind != noChain && c.kind <= rememberInput }

// name caches chain.name, which frontends ask for all the time.
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

// lost notes that somebody removed chains.
func (s *chains) lost(gone map[chain]struct{}) {
	var visit func(chain)
	visit = func(c chain) {
		if _, is := gone[c]; !is {
			return
		}
		delete(gone, c)
		for _, to := range c.leadsTo() { // comes before c again
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

// missing are the chains that are led to and that the kernel lacks. What a chain
// leads to comes before it.
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

// missingOrdinary are those of missing that have no hook.
func (s *chains) missingOrdinary() iter.Seq[chain] {
	return func(yield func(chain) bool) {
		for c := range s.missing() {
			if !c.base() && !yield(c) {
				return
			}
		}
	}
}

// surplus are the chains of ours that nothing leads to any more. What a chain leads
// to comes after it.
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

// removed notes that the first chains of surplus are gone, as many as were
// written, and what became of strangers.
func (s *chains) removed() {
	for _, name := range s.emptying {
		delete(s.strangers, name)
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
