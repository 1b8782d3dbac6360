package nftables

import "iter"

// chains keeps account of the table's chains: who leads to each, and what the
// kernel has. A chain is there while somebody leads to it.
type chains struct {
	refs  map[chain]int
	names map[chain]string
	// present are the kernel's chains that are ours to know, with the tags of
	// their rules.
	present map[chain][]uint64
	// strangers are names of the kernel's chains that nobody wants.
	strangers map[string]struct{}
	// rewrite are chains whose rules must be written again.
	rewrite map[chain]struct{}
	// fresh and stale are the chains that came into use and went out of use
	// since the kernel was last brought in line. What a chain leads to comes
	// before it in fresh.
	fresh, stale []chain
}

func newChains() *chains {
	return &chains{
		refs:      map[chain]int{},
		names:     map[chain]string{},
		present:   map[chain][]uint64{},
		strangers: map[string]struct{}{},
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

// missing are the chains that are led to and that the kernel lacks.
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

// surplus are the names of the chains that nothing leads to.
func (s *chains) surplus() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range s.strangers {
			if !yield(name) {
				return
			}
		}
		seen := map[chain]bool{}
		for _, c := range s.stale {
			_, there := s.present[c]
			if s.refs[c] > 0 || !there || seen[c] {
				continue
			}
			seen[c] = true
			if !yield(s.name(c)) {
				return
			}
		}
	}
}

func (s *chains) surplusRemoved() {
	clear(s.strangers)
	for _, c := range s.stale {
		if s.refs[c] == 0 {
			delete(s.present, c)
			delete(s.names, c)
		}
	}
	s.fresh, s.stale = nil, nil
}
