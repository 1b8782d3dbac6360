//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/notify"
	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// clients updates the affinity of clients, which rules write to maps, after endpoints
// changed. There can be a million clients, and only a dump shows who has affinity to an
// endpoint, so that happens in the background, after the commit: rules then no longer
// write what is out of date. A commit waits for a short time; with few clients all is
// done by then.
type clients struct {
	conn *nft.Conn // for long dumps

	wake notify.Signal
	mu   sync.Mutex
	todo map[*table]clientMoves
	// idle is closed when todo is done; nil if there is nothing to do.
	idle chan struct{}
	// slow says that a commit waited in vain since then: others need not.
	slow bool
}

// clientMoves is what changed for the clients of a table, by the map that they are in.
type clientMoves map[clientMap]mapMoves

type mapMoves struct {
	// left says that endpoints left the pools.
	left bool
	// gained are endpoints that the other kind of pool gained, as in affine.
	gained map[affineEndpoint]struct{}
}

// join adds moves that came later.
func (m clientMoves) join(later clientMoves) {
	for at, more := range later {
		known := m[at]
		known.left = known.left || more.left
		if known.gained == nil {
			known.gained = more.gained
		} else {
			maps.Copy(known.gained, more.gained)
		}
		m[at] = known
	}
}

// follow requests an update of a table's clients.
func (c *clients) follow(t *table, moves clientMoves) {
	c.mu.Lock()
	if c.todo[t] == nil {
		c.todo[t] = clientMoves{}
	}
	c.todo[t].join(moves)
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	c.mu.Unlock()
	c.wake.Notify()
}

// finished records that what was taken is done.
func (c *clients) finished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.todo) == 0 && c.idle != nil {
		close(c.idle)
		c.idle, c.slow = nil, false
	}
}

// clientsWait is how long a commit waits for the update of clients, and with it those of others.
const clientsWait = 10 * time.Millisecond

// wait waits until there is nothing to do, but not for long.
func (c *clients) wait(ctx context.Context) {
	c.mu.Lock()
	idle, slow := c.idle, c.slow
	c.mu.Unlock()
	if idle == nil || slow {
		return
	}
	select {
	case <-idle:
	case <-time.After(clientsWait):
		c.mu.Lock()
		c.slow = c.idle == idle
		c.mu.Unlock()
	case <-ctx.Done():
	}
}

func (c *clients) take() map[*table]clientMoves {
	c.mu.Lock()
	defer c.mu.Unlock()
	todo := c.todo
	c.todo = map[*table]clientMoves{}
	return todo
}

// moves returns what changed for clients: what endpoints left, and what pools gained since the last
// call.
func (t *table) moves(left []clientMap) clientMoves {
	moves := clientMoves{}
	for _, m := range left {
		moves.join(clientMoves{m: {left: true}})
	}
	for _, local := range []bool{false, true} {
		pool := t.affine(local)
		for e := range pool.gained {
			moves.join(clientMoves{e.port.clientMap(!local): {gained: map[affineEndpoint]struct{}{e: {}}}})
		}
		pool.gained = map[affineEndpoint]struct{}{}
	}
	return moves
}

// followItems requests an update of the clients of frontends whose endpoints changed,
// and reports whether there were any.
func (d *Dataplane) followItems(items []*item) (changed bool) {
	for _, it := range items {
		if moves := it.table.moves(it.table.endpointsLeft(it.old)); len(moves) > 0 {
			changed = true
			d.clients.follow(it.table, moves)
		}
	}
	return changed
}

// endpointsLeft returns the maps with clients of a frontend that may have lost their endpoint.
func (t *table) endpointsLeft(old *frontend) (left []clientMap) {
	for _, pool := range old.affinePools() {
		endpoints := t.affine(pool.local).endpoints
		gone := func(e plan.Endpoint) bool { return !endpoints.Has(affineEndpoint{pool.port, e.AddrPort}) }
		if slices.ContainsFunc(pool.endpoints, gone) {
			left = append(left, pool.port.clientMap(pool.local))
		}
	}
	return left
}

// clientMaps returns the maps of clients that are there.
func (t *table) clientMaps() (out []clientMap) {
	for c := range t.chains.present {
		if c.kind == remembered {
			out = append(out, c.clientMap())
		}
	}
	return out
}

// clientsPause is the time before a failed update of clients is tried again.
const clientsPause = time.Second

// followClients updates clients in the background.
func (d *Dataplane) followClients(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.clients.wake:
		}
		for t, moves := range d.clients.take() {
			err := d.moveClients(ctx, t, moves)
			if err == nil || ctx.Err() != nil {
				continue
			}
			d.logger.Error(err, "Clients may still be sent to removed endpoints", "retry", clientsPause)
			d.clients.follow(t, moves)
			sleep(ctx, clientsPause)
		}
		d.clients.finished()
	}
}

// clientPasses limits how often a map is read again after clients were found: a dump
// can miss some while the map grows or shrinks.
const clientPasses = 3

// moveClients updates the clients of one table.
func (d *Dataplane) moveClients(ctx context.Context, t *table, moves clientMoves) error {
	for m, what := range moves {
		for range clientPasses {
			some, err := d.moveClientsOf(ctx, t, m, what.gained)
			if err != nil && !errors.Is(err, unix.ENOENT) { // the map is gone, with the last that needs it
				return err
			}
			if !some {
				break
			}
		}
	}
	return nil
}

// moveClientsOf updates the clients in one map, and reports whether there was anything to do.
func (d *Dataplane) moveClientsOf(ctx context.Context, t *table, m clientMap, gained map[affineEndpoint]struct{}) (bool, error) {
	of, err := t.readClients(ctx, d.clients.conn, t.Table, m)
	if err != nil {
		return false, err
	}
	var stale, moved []nft.Element
	for at := range gained {
		for _, e := range of[at] {
			if e.Expires > 0 {
				moved = append(moved, e)
			}
		}
	}
	err = d.commits.WhenIdle(ctx, func(uint64) {
		if !slices.Contains(d.tables, t) {
			return // it is no longer used
		}
		known := t.affine(m.local).endpoints
		for at, clients := range of {
			if !known.Has(at) {
				stale = append(stale, clients...)
			}
		}
	})
	if err != nil {
		return false, err
	}
	if err := d.writeClients(ctx, moved, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
		b.AddElement(t.Table, m.other().name(), e, o)
	}); err != nil {
		return false, fmt.Errorf("moving clients to another pool: %w", err)
	}
	if err := d.writeClients(ctx, stale, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
		b.DeleteElement(t.Table, m.name(), e, o)
	}); err != nil {
		return false, fmt.Errorf("forgetting clients of endpoints that left: %w", err)
	}
	return len(stale)+len(moved) > 0, nil
}

// readClients returns the clients in a map of a table by the endpoint that they have. Those of the zero
// endpoint are none that rules write.
func (l *layout) readClients(ctx context.Context, c *nft.Conn, in nft.Table, m clientMap) (map[affineEndpoint][]nft.Element, error) {
	of := map[affineEndpoint][]nft.Element{}
	err := c.Elements(ctx, in, m.name(), func(e *nft.Element) error {
		k, v := l.decode(e.Key), l.decode(e.Data)
		k.Addr() // the client
		at := affineEndpoint{decodeAffinityID(&k.Decoder), v.endpoint()}
		if !k.Done() || !v.Done() {
			at = affineEndpoint{}
		}
		of[at] = append(of[at], nft.Element{Key: slices.Clone(e.Key), Data: slices.Clone(e.Data), Expires: e.Expires})
		return nil
	})
	if errors.Is(err, nft.ErrInterrupted) {
		err = nil // by writes to something else
	}
	return of, err
}

// clientsChunk limits a transaction: commits wait for it.
const clientsChunk = 1_000

// writeClients writes elements that rules can add, and that can expire, at any time:
// it leaves out those with which that happened.
func (d *Dataplane) writeClients(ctx context.Context, list []nft.Element, write func(*nft.Batch, *nft.Element, nft.Owner)) error {
	for some := range slices.Chunk(list, clientsChunk) {
		if err := d.tryClients(ctx, some, write); err != nil {
			return err
		}
	}
	return nil
}

// tryClients writes elements in one transaction, again without those that the kernel
// refuses.
func (d *Dataplane) tryClients(ctx context.Context, clients []nft.Element, write func(*nft.Batch, *nft.Element, nft.Owner)) error {
	for isolate := false; len(clients) > 0; isolate = true {
		b := &nft.Batch{Isolate: isolate}
		for i := range clients {
			write(b, &clients[i], nft.Owner(i+1))
		}
		err := d.commit(ctx, b)
		var refused *nft.Refused
		if err == nil || !errors.As(err, &refused) || refused.Err != nil {
			return err
		}
		if !isolate {
			continue
		}
		overtaken := map[int]bool{}
		for _, m := range refused.Messages {
			if !errors.Is(m.Err, unix.ENOENT) && !errors.Is(m.Err, unix.EEXIST) && !errors.Is(m.Err, unix.EBUSY) {
				return err
			}
			overtaken[int(m.Owner)-1] = true
		}
		var rest []nft.Element
		for i := range clients {
			if !overtaken[i] {
				rest = append(rest, clients[i])
			}
		}
		clients = rest
	}
	return nil
}
