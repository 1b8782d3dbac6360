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
	todo map[*table]*clientMoves
	// idle is closed when todo is done; nil if there is nothing to do.
	idle chan struct{}
	// slow says that a commit waited in vain since then: others need not.
	slow bool
}

// clientMoves is what changed for the clients of a table's pools.
type clientMoves struct {
	pools [2]poolMoves // of the cluster, and local
}

type poolMoves struct {
	// left says that endpoints left the pool; gained are as in affine.
	left   bool
	gained map[affineEndpoint]struct{}
}

// follow requests an update of a table's clients.
func (c *clients) follow(t *table, moves *clientMoves) {
	c.mu.Lock()
	if todo := c.todo[t]; todo == nil {
		c.todo[t] = moves
	} else {
		for i, m := range moves.pools {
			todo.pools[i].left = todo.pools[i].left || m.left
			maps.Copy(todo.pools[i].gained, m.gained)
		}
	}
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

func (c *clients) take() map[*table]*clientMoves {
	c.mu.Lock()
	defer c.mu.Unlock()
	todo := c.todo
	c.todo = map[*table]*clientMoves{}
	return todo
}

// moves returns what changed for clients: which pools endpoints left, and what they gained
// since the last call.
func (t *table) moves(left [2]bool) *clientMoves {
	m := &clientMoves{}
	for i := range m.pools {
		pool := t.affine(i == 1)
		m.pools[i] = poolMoves{left[i], pool.gained}
		pool.gained = map[affineEndpoint]struct{}{}
	}
	return m
}

// followItems requests an update of the clients of frontends whose endpoints changed,
// and reports whether there were any.
func (d *Dataplane) followItems(items []*item) (changed bool) {
	for _, it := range items {
		t := it.table
		left := t.endpointsLeft(it.old)
		if left == [2]bool{} && len(t.clusterAffine.gained)+len(t.localAffine.gained) == 0 {
			continue
		}
		changed = true
		d.clients.follow(t, t.moves(left))
	}
	return changed
}

// endpointsLeft reports from which kind of pool endpoints of a frontend were removed.
func (t *table) endpointsLeft(old *frontend) (left [2]bool) {
	for _, pool := range old.affinePools() {
		endpoints := t.affine(pool.local).endpoints
		gone := func(e plan.Endpoint) bool { return !endpoints.Has(affineEndpoint{pool.port, e.AddrPort}) }
		if slices.ContainsFunc(pool.endpoints, gone) {
			left[index(pool.local)] = true
		}
	}
	return left
}

func index(local bool) int {
	if local {
		return 1
	}
	return 0
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
func (d *Dataplane) moveClients(ctx context.Context, t *table, m *clientMoves) error {
	for i := range m.pools {
		local := i == 1
		from, to := t.affine(local), t.affine(!local)
		left, gained := m.pools[i].left, m.pools[1-i].gained
		for pass := 0; pass < clientPasses && (left || len(gained) > 0); pass++ {
			known, err := d.affineEndpoints(ctx, t)
			if known == nil || err != nil {
				return err
			}
			stale, moved, err := d.readClients(ctx, t, from.clients, known[i], gained)
			if err != nil {
				return err
			}
			if err := d.writeClients(ctx, moved, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
				b.AddElement(t.Table, to.clients, e, o)
			}); err != nil {
				return fmt.Errorf("moving clients to another pool: %w", err)
			}
			if err := d.writeClients(ctx, stale, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
				b.DeleteElement(t.Table, from.clients, e, o)
			}); err != nil {
				return fmt.Errorf("forgetting clients of endpoints that left: %w", err)
			}
			if len(stale)+len(moved) == 0 {
				break
			}
		}
	}
	return nil
}

// affineEndpoints returns the endpoints that clients may have affinity to, by kind of
// pool; nil if the table is no longer used.
func (d *Dataplane) affineEndpoints(ctx context.Context, t *table) (known []map[affineEndpoint]struct{}, err error) {
	err = d.commits.WhenIdle(ctx, func(uint64) {
		if slices.Contains(d.tables, t) {
			known = []map[affineEndpoint]struct{}{t.clusterAffine.endpoints.All(), t.localAffine.endpoints.All()}
		}
	})
	return known, err
}

// readClients returns the clients whose endpoint is not known, and those whose endpoint
// the other pool gained.
func (d *Dataplane) readClients(ctx context.Context, t *table, set string, known, gained map[affineEndpoint]struct{}) (stale, moved []nft.Element, err error) {
	err = d.clients.conn.Elements(ctx, t.Table, set, func(e *nft.Element) error {
		k, v := t.decode(e.Key), t.decode(e.Data)
		k.Addr() // the client
		remembered := affineEndpoint{decodeAffinityID(&k.Decoder), v.endpoint()}
		if _, ok := known[remembered]; !ok || !k.Done() || !v.Done() {
			stale = append(stale, nft.Element{Key: slices.Clone(e.Key)})
		}
		if _, ok := gained[remembered]; ok && e.Expires > 0 {
			moved = append(moved, nft.Element{Key: slices.Clone(e.Key), Data: slices.Clone(e.Data), Expires: e.Expires})
		}
		return nil
	})
	if errors.Is(err, nft.ErrInterrupted) {
		err = nil // by writes to something else
	}
	return stale, moved, err
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
