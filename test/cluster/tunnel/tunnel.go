package tunnel

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"sluice/test/lab"
)

// Tunnel is a listener with its connections.
type Tunnel struct {
	listener net.Listener
	server   netip.AddrPort
	workers  sync.WaitGroup

	mutex   sync.Mutex
	state   state
	links   map[*link]struct{}
	refused int
}

// state is what happens to the bytes at present.
type state struct {
	mode    mode
	delay   time.Duration // of each piece
	changed chan struct{} // closed when another state follows
}

type mode int

const (
	carry mode = iota
	stall
	cut
)

// Open listens at an address of a host of the lab and connects clients with the
// server. The caller must Close the tunnel, before the lab.
func Open(host *lab.Host, at, server netip.AddrPort) (*Tunnel, error) {
	t := &Tunnel{server: server, links: map[*link]struct{}{}, state: state{changed: make(chan struct{})}}
	err := host.Do(func() (err error) {
		t.listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open tunnel from %s to %v: %w", host.Name, server, err)
	}
	t.workers.Go(t.accept)
	return t, nil
}

// Close ends the tunnel and all connections in it.
func (t *Tunnel) Close() error {
	err := t.listener.Close()
	t.Cut()
	t.workers.Wait()
	return err
}

// Carry lets everything pass, as initially. What Stall held back arrives now.
func (t *Tunnel) Carry() { t.enter(state{mode: carry}) }

// Slow delays every piece of up to pieceSize bytes.
func (t *Tunnel) Slow(delay time.Duration) { t.enter(state{mode: carry, delay: delay}) }

// Stall lets nothing pass: connections exist, and new ones are accepted, but they
// are silent, as when a router in between drops packets.
func (t *Tunnel) Stall() { t.enter(state{mode: stall}) }

// Forget lets nothing pass on existing connections: they are silent forever, as
// when a router in between lost its state. New ones work.
func (t *Tunnel) Forget() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for l := range t.links {
		l.forgotten.Store(true)
	}
}

// Cut resets all connections, also new ones, as when the server's machine is up but
// the server is not.
func (t *Tunnel) Cut() {
	t.enter(state{mode: cut})
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for l := range t.links {
		l.reset()
	}
}

// Connections returns the number of open connections.
func (t *Tunnel) Connections() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return len(t.links)
}

// Refused returns how many connections came while the tunnel was cut.
func (t *Tunnel) Refused() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.refused
}

func (t *Tunnel) enter(next state) {
	next.changed = make(chan struct{})
	t.mutex.Lock()
	defer t.mutex.Unlock()
	close(t.state.changed)
	t.state = next
}

func (t *Tunnel) current() state {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.state
}

func (t *Tunnel) accept() {
	for {
		near, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		t.workers.Go(func() { t.connect(near) })
	}
}

// connect serves one connection to its end.
func (t *Tunnel) connect(near net.Conn) {
	l := &link{near: near, ended: make(chan struct{})}
	defer l.close()
	far, err := net.Dial("tcp", t.server.String())
	if err == nil {
		l.far = far
	}
	if err != nil || !t.add(l) {
		l.reset()
		return
	}
	defer t.remove(l)
	t.workers.Go(func() { t.copy(l, far, near) })
	t.copy(l, near, far)
}

// add reports whether the connection may exist.
func (t *Tunnel) add(l *link) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.state.mode == cut {
		t.refused++
		return false
	}
	t.links[l] = struct{}{}
	return true
}

func (t *Tunnel) remove(l *link) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.links, l)
}
