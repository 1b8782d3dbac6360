//go:build linux

package nftables

import (
	"iter"
	"slices"

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
	// they lead to. None before freshFrom is missing, and none before staleFrom is surplus:
	// there can be very many, for many transactions.
	fresh, stale         []chain
	freshFrom, staleFrom int
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

// real reports whether it is a chain: drop and pass are only verdicts.
func (c chain) real() bool { return c.kind != noChain && c.kind != drop && c.kind != pass }

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
	for _, to := range c.needs() {
		s.hold(to)
	}
	if c.kind == rangeSet { // also chains that came into use before it can refer to it
		s.fresh = slices.Insert(s.fresh, s.freshFrom, c)
		return
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
	for _, to := range c.needs() {
		s.release(to)
	}
}

// writeLater has a chain whose rules changed written again, after all chains that came into use.
func (s *chains) writeLater(c chain, tags func(chain) []uint64) {
	have, there := s.present[c]
	delete(s.rewrite, c)
	switch {
	case !there:
		s.fresh = append(slices.DeleteFunc(s.fresh, func(o chain) bool { return o == c }), c)
		s.freshFrom = 0
	case !slices.Equal(have, tags(c)):
		s.rewrite[c] = struct{}{}
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
		for _, to := range c.needs() { // before c, as in hold
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

// eachChain yields the chains of a list that are so, each once, and advances start to the first of them:
// those that change later are appended again.
func eachChain(list []chain, start *int, is, yield func(chain) bool) {
	for *start < len(list) && !is(list[*start]) {
		*start++
	}
	seen := map[chain]bool{}
	for _, c := range list[*start:] {
		if !is(c) || seen[c] {
			continue
		}
		seen[c] = true
		if !yield(c) {
			return
		}
	}
}

// missing yields the chains that are needed and not in the kernel, after those that
// they lead to.
func (s *chains) missing() iter.Seq[chain] {
	return func(yield func(chain) bool) {
		eachChain(s.fresh, &s.freshFrom, func(c chain) bool {
			_, there := s.present[c]
			return s.refs[c] > 0 && !there
		}, yield)
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
		eachChain(s.stale, &s.staleFrom, func(c chain) bool {
			_, there := s.present[c]
			return s.refs[c] == 0 && there
		}, yield)
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
		s.fresh, s.stale, s.freshFrom, s.staleFrom = nil, nil, 0, 0
	}
}
