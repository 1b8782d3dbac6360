package relay

import (
	"context"
	"net"
	"net/netip"
)

// Gate listens on an address, and forwards each connection to an endpoint of the pool
// that its client may use. In contrast to a Relay, the owner makes the pools, which
// several Gates can share. Its methods are for one goroutine.
type Gate struct{ listener }

// NewGate returns a Gate that does not listen yet. Choose returns the pool of a client,
// and may be called by any goroutine. When ctx ends, so do all connections.
func NewGate(ctx context.Context, o Options, choose func(client netip.Addr) *Pool) *Gate {
	o.setDefaults()
	return &Gate{listener{server: server{Options: o, paths: byClient{choose: choose}, lifetime: ctx}}}
}

// Listen listens, and answers TCP clients or not.
func (g *Gate) Listen(answer bool) error { return g.listen(answer) }

// byClient is the paths of a Gate.
type byClient struct {
	onePool
	choose func(netip.Addr) *Pool
}

func (p byClient) findTCP(client *net.TCPConn) *Pool {
	return p.choose(client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
}

func (p byClient) findUDP(client, _ netip.AddrPort) *Pool { return p.choose(client.Addr()) }
