package model

import (
	"net/netip"
	"slices"
	"strings"
)

// Peer is another node of the cluster.
type Peer struct {
	Name string
	IPs  []netip.Addr // as those of a Node
}

// PrimaryIP returns the first address of the family, or the invalid address.
func (p *Peer) PrimaryIP(f Family) netip.Addr { return firstOf(f, p.IPs) }

func firstOf(f Family, ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if FamilyOf(ip) == f {
			return ip
		}
	}
	return netip.Addr{}
}

// Path is what is known of the way to the address of another node: whether packets that are addressed to
// neither can be handed to it, and whether what it answers to their clients arrives.
type Path struct {
	Addr  netip.Addr
	State PathState
}

// PathState is how good a way is.
type PathState uint8

// The states.
const (
	PathUnknown  PathState = iota // nobody has looked yet
	PathProven                    // a probe came back
	PathOffLink                   // the address is not on the link of the device
	PathNoMAC                     // it does not answer there
	PathSilent                    // it does, but not to probes: the feature is off there, or something drops them
	PathFiltered                  // it answers probes, but not those whose answer has a foreign source
	NumPathStates
)

func (s PathState) String() string {
	return [...]string{"unknown", "proven", "off-link", "no-mac", "silent", "filtered"}[s]
}

// SetPeer adds another node or replaces the one of that name.
type SetPeer struct{ *Peer }

// DeletePeer removes another node.
type DeletePeer struct{ Name string }

// SetPaths replaces what is known of the ways to some addresses. Those of PathUnknown are forgotten.
type SetPaths struct{ Paths []Path }

func (e SetPeer) apply(s *State, d *Dirty) {
	at, found := s.findPeer(e.Name)
	switch {
	case found && slices.Equal(s.peers[at].IPs, e.IPs):
		return
	case found:
		s.peers[at] = e.Peer
	default:
		s.peers = slices.Insert(s.peers, at, e.Peer)
	}
	s.revision++
	d.Node = true
}

func (e DeletePeer) apply(s *State, d *Dirty) {
	if at, found := s.findPeer(e.Name); found {
		s.peers = slices.Delete(s.peers, at, at+1)
		s.revision++
		d.Node = true
	}
}

func (s *State) findPeer(name string) (int, bool) {
	return slices.BinarySearchFunc(s.peers, name, func(p *Peer, n string) int { return strings.Compare(p.Name, n) })
}

func (e SetPaths) apply(s *State, d *Dirty) {
	changed := false
	for _, p := range e.Paths {
		switch {
		case s.paths[p.Addr] == p, s.paths[p.Addr] == Path{} && p == Path{Addr: p.Addr}:
			continue
		case p == Path{Addr: p.Addr}:
			delete(s.paths, p.Addr)
		default:
			if s.paths == nil {
				s.paths = map[netip.Addr]Path{}
			}
			s.paths[p.Addr] = p
		}
		changed = true
	}
	if changed {
		s.revision++
		d.Node = true
	}
}

// Peers returns the other nodes, sorted by name. The list is the State's own, and valid until the next Apply.
func (s *State) Peers() []*Peer { return s.peers }

// Path returns what is known of the way to an address.
func (s *State) Path(to netip.Addr) Path {
	if p, known := s.paths[to]; known {
		return p
	}
	return Path{Addr: to}
}
