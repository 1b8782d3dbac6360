package nftables

import (
	"crypto/sha256"
	"encoding/binary"

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
	for gone, come := range plan.MergeEndpoints(old, new) {
		switch {
		case come == nil:
			pool.endpoints.release(affineEndpoint{id, gone.AddrPort})
		case gone == nil:
			at := affineEndpoint{id, come.AddrPort}
			if !pool.endpoints.has(at) && other.endpoints.has(at) {
				pool.gained[at] = struct{}{}
			}
			pool.endpoints.hold(at)
		}
	}
}
