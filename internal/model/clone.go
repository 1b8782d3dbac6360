package model

import (
	"maps"
	"slices"
)

// Clone returns an independent State with the same contents. Services, slices
// and other values are immutable and shared.
func (s *State) Clone() *State {
	c := *s
	c.services = maps.Clone(s.services)
	c.owner = maps.Clone(s.owner)
	c.cidrs = maps.Clone(s.cidrs)
	c.slices = make(map[Name][]*Slice, len(s.slices))
	for name, list := range s.slices {
		c.slices[name] = slices.Clone(list)
	}
	return &c
}
