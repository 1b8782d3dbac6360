package relay

import (
	"net"
	"net/netip"
	"sync"
)

// streams are the TCP connections of a Relay with ResetRemoved. Others do not
// track them.
type streams struct {
	mu   sync.Mutex // never held across I/O
	open map[*stream]struct{}
}

// stream is the connection of a client and the one to its endpoint.
type stream struct {
	client, endpoint *net.TCPConn
	to               netip.AddrPort
}

func (s *stream) reset() {
	reset(s.client)
	reset(s.endpoint)
}

func (all *streams) add(s *stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*stream]struct{}{}
	}
	all.open[s] = struct{}{}
}

func (all *streams) remove(s *stream) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, s)
}

func (all *streams) resetWhere(gone func(netip.AddrPort) bool) {
	var over []*stream
	all.mu.Lock()
	for s := range all.open {
		if gone(s.to) {
			over = append(over, s)
		}
	}
	all.mu.Unlock()
	for _, s := range over {
		s.reset()
	}
}
