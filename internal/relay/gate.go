package relay

import (
	"context"
	"net"
	"net/netip"
)

// Gate listens on an address, and forwards each connection to an endpoint of the pool
// that its client may use. In contrast to a Relay, the owner makes the pools, which
// several Gates can share. Its methods are for one goroutine.
type Gate struct {
	server
	front front // nil while it does not listen
}

// NewGate returns a Gate that does not listen yet. Choose returns the pool of a client,
// and may be called by any goroutine. When ctx ends, so do all connections.
func NewGate(ctx context.Context, o Options, choose func(client netip.Addr) *Pool) *Gate {
	o.setDefaults()
	return &Gate{server: server{Options: o, paths: byClient{choose: choose}, lifetime: ctx}}
}

// Listen listens, and answers TCP clients or not.
func (g *Gate) Listen(answer bool) error {
	if g.front == nil {
		front, err := g.open(!answer)
		if err != nil {
			return err
		}
		g.front = front
	}
	if tcp, ok := g.front.(*tcpFront); ok {
		return tcp.answer(answer)
	}
	return nil
}

// Listening reports whether the Gate listens.
func (g *Gate) Listening() bool { return g.front != nil }

// Close releases the address. TCP connections go on until they end by themselves or
// the context of NewGate does; Listen makes it listen again.
func (g *Gate) Close() {
	if g.front != nil {
		g.front.close()
		g.front = nil
	}
}

// Wait waits until all connections of a closed Gate have ended.
func (g *Gate) Wait() { g.running.Wait() }

// byClient is the paths of a Gate.
type byClient struct {
	onePool
	choose func(netip.Addr) *Pool
}

func (p byClient) findTCP(client *net.TCPConn) *Pool {
	return p.choose(client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
}

func (p byClient) findUDP(client netip.AddrPort) *Pool { return p.choose(client.Addr()) }
