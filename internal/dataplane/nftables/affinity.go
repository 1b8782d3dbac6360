package nftables

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/nft"
	"sluice/internal/plan"
)

// affinityID tells service ports apart in the maps of remembered clients, since a
// client is remembered at all frontends of a service port. It is made of a
// cryptographic hash: nobody can choose names so that the clients of somebody
// else's Service are taken for those of theirs.
type affinityID uint64

func affinityOf(f *plan.Frontend) affinityID {
	sum := sha256.Sum256([]byte(f.Service.String() + ":" + f.Port + "/" + f.Protocol.String()))
	return affinityID(binary.BigEndian.Uint64(sum[:]))
}

// words are the two halves of the number, as rules and keys have them.
func (id affinityID) words() [2]uint32 { return [2]uint32{uint32(id >> 32), uint32(id)} }

// affinePool is a pool whose endpoints clients can be sent back to.
type affinePool struct {
	port      affinityID
	local     bool
	endpoints []plan.Endpoint
}

// affinePools are the pools of a frontend with session affinity: that of Route and
// that of Outside, which is local.
func (f *frontend) affinePools() [2]affinePool {
	if f == nil || f.Affinity == 0 {
		return [2]affinePool{}
	}
	id := affinityOf(f.Frontend)
	pools := [2]affinePool{{id, f.Route.Local, f.Route.Endpoints}}
	if f.Outside != nil {
		pools[1] = affinePool{id, true, f.Outside.Endpoints}
	}
	return pools
}

// affine is the endpoints that clients of one sort of pool can be sent back to.
type affine struct {
	clients   string // the map of clients
	endpoints *members[affineEndpoint]
	// gained are endpoints that came from the other sort of pool. Clients that were
	// sent there stay with them: the traffic policy changed, not the endpoint.
	gained map[affineEndpoint]struct{}
}

func newAffine(clients, endpoints string) *affine {
	return &affine{clients, newAffineEndpoints(endpoints), map[affineEndpoint]struct{}{}}
}

// affine is that of the cluster's pools, or of the local ones.
func (t *table) affine(local bool) *affine {
	if local {
		return t.localAffine
	}
	return t.clusterAffine
}

// exchangeAffine keeps account of the endpoints that clients can be sent back to.
func (t *table) exchangeAffine(old, new affinePool) {
	if old.port == new.port && old.local == new.local {
		t.changeAffine(old.port, old.local, old.endpoints, new.endpoints)
		return
	}
	// What comes is held first, while it shows which of it was in the other pool.
	t.changeAffine(new.port, new.local, nil, new.endpoints)
	t.changeAffine(old.port, old.local, old.endpoints, nil)
}

func (t *table) changeAffine(id affinityID, local bool, old, new []plan.Endpoint) {
	pool, other := t.affine(local), t.affine(!local)
	eachDifference(old, new,
		func(e plan.Endpoint) { pool.endpoints.release(affineEndpoint{id, e.AddrPort}) },
		func(e plan.Endpoint) {
			at := affineEndpoint{id, e.AddrPort}
			if !pool.endpoints.has(at) && other.endpoints.has(at) {
				pool.gained[at] = struct{}{}
			}
			pool.endpoints.hold(at)
		})
}

// moveClients has the clients of frontends that changed follow: those of endpoints
// that left a pool forget them.
func (d *Dataplane) moveClients(ctx context.Context, items []*item) error {
	var tables []*table
	for _, it := range items {
		if !slices.Contains(tables, it.table) && it.table.clientsMove(it.old) {
			tables = append(tables, it.table)
		}
	}
	for _, t := range tables {
		if err := d.sweepAffinity(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// clientsMove reports whether clients may remember an endpoint of a frontend that
// left its pool or came to another.
func (t *table) clientsMove(old *frontend) bool {
	if len(t.clusterAffine.gained)+len(t.localAffine.gained) > 0 {
		return true
	}
	for _, pool := range old.affinePools() {
		endpoints := t.affine(pool.local).endpoints
		gone := func(e plan.Endpoint) bool { return !endpoints.has(affineEndpoint{pool.port, e.AddrPort}) }
		if slices.ContainsFunc(pool.endpoints, gone) {
			return true
		}
	}
	return false
}

// sweepAffinity removes what the packet path remembered and is no longer true, and
// adds what became true. It runs after the change took effect, so that nothing
// stale comes after it.
func (d *Dataplane) sweepAffinity(ctx context.Context, t *table) error {
	for _, local := range []bool{false, true} {
		from, to := t.affine(local), t.affine(!local)
		stale, moved, err := d.movedClients(ctx, t, from, to)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(moved, d.bound) {
			if err := d.eachClient(ctx, some, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
				b.AddElement(t.Table, to.clients, e, o)
			}); err != nil {
				return fmt.Errorf("moving clients to another pool: %w", err)
			}
		}
		for some := range slices.Chunk(stale, d.bound) {
			if err := d.eachClient(ctx, some, func(b *nft.Batch, e *nft.Element, o nft.Owner) {
				b.DeleteElement(t.Table, from.clients, e, o)
			}); err != nil {
				return fmt.Errorf("forgetting clients of endpoints that left: %w", err)
			}
		}
		clear(to.gained)
	}
	return nil
}

// movedClients finds the clients whose endpoint is no longer in the pool, and those
// whose endpoint is in the other pool now.
func (d *Dataplane) movedClients(ctx context.Context, t *table, from, to *affine) (stale, moved []nft.Element, err error) {
	read := func(e *nft.Element) error {
		k, v := t.decode(e.Key), t.decode(e.Data)
		k.addr() // the client
		remembered := affineEndpoint{k.affinityID(), v.endpoint()}
		if !from.endpoints.has(remembered) || !k.done() || !v.done() {
			stale = append(stale, nft.Element{Key: slices.Clone(e.Key)})
		}
		if _, gained := to.gained[remembered]; gained && e.Expires > 0 {
			moved = append(moved, nft.Element{Key: slices.Clone(e.Key), Data: slices.Clone(e.Data), Expires: e.Expires})
		}
		return nil
	}
	for {
		stale, moved = nil, nil
		err := d.writer.Elements(ctx, t.Table, from.clients, read)
		if !errors.Is(err, nft.ErrInterrupted) {
			return stale, moved, err
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// eachClient writes elements that the packet path can add and that can expire at
// any moment: those with which that happened are left out, and the others tried
// again.
func (d *Dataplane) eachClient(ctx context.Context, clients []nft.Element, write func(*nft.Batch, *nft.Element, nft.Owner)) error {
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
