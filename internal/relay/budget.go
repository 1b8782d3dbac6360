package relay

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	// reservedFiles are those for everything but connections.
	reservedFiles = 128
	// filesOfConnection are the two sockets of a TCP connection, and a pipe while data is on
	// its way; a UDP flow has one socket.
	filesOfConnection = 4
	filesOfFlow       = 1
	// mostConnections is how many there are at most: the kernel has no more than so
	// many ports for a few endpoints.
	mostConnections = 1 << 20

	// greed is how many times as many files as are left for all others a client address, or a
	// Service, may have. So one of them gets three quarters at most, and those that come later
	// find some whatever the others do.
	greed = 3
	// dialledOfClient and dialledOfService are how many connections of a client address, and
	// to a Service, are being opened to endpoints at a time. Further ones wait for as long as
	// they would for endpoints.
	dialledOfClient  = 64
	dialledOfService = 128
)

// Budget shares out what connections need, files and the time to open them, among the clients
// and Services of all that use it. It is safe for concurrent use.
type Budget struct {
	files int

	mu          sync.Mutex // never held across I/O
	used        int
	connections int
	clients     map[netip.Addr]int // how many files they have
	services    map[*Balancer]int

	dialledClients  turns[netip.Addr]
	dialledServices turns[*Balancer]

	excess, loops reminder
}

// NewBudget returns a Budget of some files.
func NewBudget(files int) *Budget {
	b := &Budget{files: files, clients: map[netip.Addr]int{}, services: map[*Balancer]int{}}
	b.dialledClients.most, b.dialledServices.most = dialledOfClient, dialledOfService
	return b
}

// ProcessBudget returns the Budget of the files that this process may open, which is for a
// number of TCP connections at most; 0 for as many as can be.
func ProcessBudget(connections int) (*Budget, error) {
	files, err := fileLimit()
	if err != nil {
		return nil, fmt.Errorf("find out how many files can be open: %w", err)
	}
	if connections == 0 {
		connections = mostConnections
	}
	b := NewBudget(int(min(files, reservedFiles+uint64(connections)*filesOfConnection) - min(files, reservedFiles)))
	if b.files < 2*filesOfConnection {
		return nil, fmt.Errorf("only %d files can be open, which leaves none for connections: raise the limit (ulimit -n, LimitNOFILE= of systemd)", files)
	}
	return b, nil
}

// Connections returns how many TCP connections there are, and could be if there were nothing
// else.
func (b *Budget) Connections() (now, limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connections, b.files / filesOfConnection
}

// share is what one connection or flow takes of a Budget.
type share struct {
	client  netip.Addr
	service *Balancer
	files   int
}

// excess is who has too much for another share.
type excess uint8

const (
	nobody excess = iota
	everybody
	theClient
	theService
)

// take takes a share, unless there is too little left.
func (b *Budget) take(s share) excess {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.files - b.used - s.files
	switch {
	case left < 0:
		return everybody
	case b.clients[s.client]+s.files > greed*left:
		return theClient
	case b.services[s.service]+s.files > greed*left:
		return theService
	}
	b.add(s, 1)
	return nobody
}

// who names who has too much.
func (s share) who(e excess) string {
	switch e {
	case theClient:
		return "client " + s.client.String()
	case theService:
		return s.service.name
	}
	return "all together"
}

// give returns a share.
func (b *Budget) give(s share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(s, -1)
}

func (b *Budget) add(s share, sign int) {
	files := sign * s.files
	b.used += files
	if s.files == filesOfConnection {
		b.connections += sign
	}
	addTo(b.clients, s.client, files)
	addTo(b.services, s.service, files)
}

// addTo adds to a number in a map that has no zeros.
func addTo[K comparable](m map[K]int, k K, n int) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

// turn waits until a client and a Service may open another connection to an endpoint. The
// caller calls done when it is open.
func (b *Budget) turn(ctx context.Context, client netip.Addr, service *Balancer) (done func(), err error) {
	if err := b.dialledClients.take(ctx, client); err != nil {
		return nil, err
	}
	if err := b.dialledServices.take(ctx, service); err != nil {
		b.dialledClients.give(client)
		return nil, err
	}
	return func() {
		b.dialledServices.give(service)
		b.dialledClients.give(client)
	}, nil
}

// turns bounds what each key does at a time.
type turns[K comparable] struct {
	most int
	mu   sync.Mutex
	of   map[K]*queue
}

// queue is of those who have a turn or wait for one.
type queue struct {
	all   int
	turns chan struct{}
}

func (t *turns[K]) take(ctx context.Context, k K) error {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[K]*queue{}
	}
	q := t.of[k]
	if q == nil {
		q = &queue{turns: make(chan struct{}, t.most)}
		t.of[k] = q
	}
	q.all++
	t.mu.Unlock()
	select {
	case q.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.leave(k, q)
		return context.Cause(ctx)
	}
}

func (t *turns[K]) give(k K) {
	t.mu.Lock()
	q := t.of[k]
	t.mu.Unlock()
	<-q.turns
	t.leave(k, q)
}

// leave forgets a queue that nobody is in.
func (t *turns[K]) leave(k K, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.all--; q.all == 0 {
		delete(t.of, k)
	}
}

// reminder is of something that is to be told now and then.
type reminder struct {
	mu   sync.Mutex
	last time.Time
}

// tellEvery is how often the same is logged.
const tellEvery = time.Minute

func (r *reminder) due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < tellEvery {
		return false
	}
	r.last = now
	return true
}
