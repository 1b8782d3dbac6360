package relay

import (
	"container/list"
	"context"
	"fmt"
	"net"
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
	// maxConnections is how many there are at most: the kernel has no more than so
	// many ports for a few endpoints.
	maxConnections = 1 << 20

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
	used        [kinds]int
	connections int
	clients     map[netip.Addr]*holder
	services    map[*Balancer]*holder
	flows       list.List // of all, as those of a holder

	dialledClients  turns[netip.Addr]
	dialledServices turns[*Balancer]

	excess, loops reminder
}

// holder is what a client address, or a Service, has.
type holder struct {
	files [kinds]int
	flows list.List // of *session: those of UDP, in the order in which their clients last sent something
}

// NewBudget returns a Budget of some files.
func NewBudget(files int) *Budget {
	b := &Budget{files: files, clients: map[netip.Addr]*holder{}, services: map[*Balancer]*holder{}}
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
		connections = maxConnections
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

// kind is whether files are those of connections or of flows.
type kind uint8

const (
	ofConnections kind = iota
	ofFlows
	kinds
)

func (s share) kind() kind {
	if s.files == filesOfConnection {
		return ofConnections
	}
	return ofFlows
}

// take takes a share, unless there is too little left. Flows are no obstacle to connections, for
// which they make room.
func (b *Budget) take(s share) excess {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := s.kind()
	left := b.files - b.used[ofConnections] - s.files
	if k == ofFlows {
		left -= b.used[ofFlows]
	}
	switch {
	case left < 0:
		return everybody
	case filesOf(b.clients, s.client, k)+s.files > greed*left:
		return theClient
	case filesOf(b.services, s.service, k)+s.files > greed*left:
		return theService
	}
	b.add(s, 1)
	return nobody
}

// exchange takes a share in place of those that were given up for it: who has too much still has too
// much, but less than before. It reports whether there was one.
func (b *Budget) exchange(s share) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[ofConnections]+b.used[ofFlows]+s.files > b.files {
		return false
	}
	b.add(s, 1)
	return true
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

func (b *Budget) give(s share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(s, -1)
}

func (b *Budget) add(s share, sign int) {
	files := sign * s.files
	b.used[s.kind()] += files
	if s.kind() == ofConnections {
		b.connections += sign
	}
	addTo(b.clients, s.client, s.kind(), files)
	addTo(b.services, s.service, s.kind(), files)
}

func filesOf[K comparable](holders map[K]*holder, who K, k kind) int {
	if h := holders[who]; h != nil {
		return h.files[k]
	}
	return 0
}

// addTo adds files to those of a holder. Who has none is forgotten.
func addTo[K comparable](holders map[K]*holder, who K, k kind, files int) {
	h := holders[who]
	if h == nil {
		h = &holder{}
		holders[who] = h
	}
	if h.files[k] += files; h.files == [kinds]int{} {
		delete(holders, who)
	}
}

// reclaim ends flows until a connection that was let in has its files.
func (b *Budget) reclaim() {
	for range filesOfConnection {
		var victim *session
		b.mu.Lock()
		if b.used[ofConnections]+b.used[ofFlows] > b.files {
			victim = idlest(&b.flows)
		}
		b.mu.Unlock()
		if victim == nil {
			return
		}
		victim.front.end(victim, net.ErrClosed)
	}
}

// enter makes a flow, whose share is taken, one of those that can be evicted.
func (b *Budget) enter(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, flows := range []*list.List{&b.clients[s.part.client].flows, &b.services[s.part.service].flows, &b.flows} {
		s.places[i] = place{flows, flows.PushBack(s)}
	}
}

// touch makes a flow the last that is evicted.
func (b *Budget) touch(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range s.places {
		p.flows.MoveToBack(p.element)
	}
}

func (b *Budget) leave(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range s.places {
		p.flows.Remove(p.element)
	}
	b.add(s.part, -1)
}

// place is that of a flow among those of a holder.
type place struct {
	flows   *list.List
	element *list.Element
}

// looks is how many flows are looked at for one to evict: those whose clients sent nothing for
// the longest time, of which some may get answers still.
const looks = 8

// victim returns a flow of those that have too much, nil if there is none.
func (b *Budget) victim(s share, e excess) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.services[s.service]
	if e == theClient {
		h = b.clients[s.client]
	}
	if h == nil {
		return nil
	}
	return idlest(&h.flows)
}

// idlest returns a flow that was idle for long, nil if there is none.
func idlest(flows *list.List) (out *session) {
	for i, element := 0, flows.Front(); element != nil && i < looks; i, element = i+1, element.Next() {
		if s := element.Value.(*session); out == nil || s.used.Load() < out.used.Load() {
			out = s
		}
	}
	return out
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

// logEvery is how often the same is logged.
const logEvery = time.Minute

func (r *reminder) due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < logEvery {
		return false
	}
	r.last = now
	return true
}
