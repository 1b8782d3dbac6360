//go:build linux

package nftables

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/internal/kernel/nft"
	"sluice/internal/plan"
)

// affinityID identifies a service port in the maps of remembered clients: a client is
// remembered for all frontends of a service port. It is a cryptographic hash, so that
// names cannot be chosen to collide with those of another Service.
type affinityID uint64

// remembers reports whether the table remembers the endpoints of a frontend's clients.
func remembers(f *plan.Frontend) bool { return f.Affinity > 0 && !f.Route.Delegated() }

func affinityOf(f *plan.Frontend) affinityID {
	return hashID(f.Service.String() + ":" + f.Port + "/" + f.Protocol.String())
}

func hashID(text string) affinityID {
	sum := sha256.Sum256([]byte(text))
	return affinityID(binary.BigEndian.Uint64(sum[:]))
}

func (id affinityID) hex() string { return fmt.Sprintf("%016x", uint64(id)) }

// words are the two halves of the number.
func (id affinityID) words() [2]uint32 { return [2]uint32{uint32(id >> 32), uint32(id)} }

// values is the number as part of a key.
func (id affinityID) values() nft.Concat {
	words := id.words()
	return nft.Concat{nft.Constant(words[0]), nft.Constant(words[1])}
}

func (id affinityID) encode(a *nft.Arena) {
	for _, word := range id.words() {
		a.Word(word)
	}
}

func decodeAffinityID(d *nft.Decoder) affinityID {
	high, low := d.Word(), d.Word()
	return affinityID(high)<<32 | affinityID(low)
}

// affineEndpoint is an endpoint that clients of a service port may have affinity to.
type affineEndpoint struct {
	port affinityID
	netip.AddrPort
}

var affineEndpoints = nft.MemberType[affineEndpoint]{Key: affineEndpointKey, Decode: decodeAffineEndpoint, Compare: affineEndpoint.compare}

func (e affineEndpoint) compare(o affineEndpoint) int {
	return cmp.Or(e.AddrPort.Compare(o.AddrPort), cmp.Compare(e.port, o.port))
}

func affineEndpointKey(a *nft.Arena, e affineEndpoint) []byte {
	at := len(*a)
	a.Addr(e.Addr())
	a.Port(e.Port())
	e.port.encode(a)
	return a.Cut(at)
}

func decodeAffineEndpoint(d *nft.Decoder) affineEndpoint {
	ep := decodeEndpoint(d)
	return affineEndpoint{decodeAffinityID(d), ep}
}

// affinePool is a pool of a frontend with session affinity.
type affinePool struct {
	port      affinityID
	local     bool
	endpoints []plan.Endpoint
}

// affinePools returns the pools of a frontend with session affinity: that of Route, and
// that of Outside, which is local.
func (f *frontend) affinePools() [2]affinePool {
	if f == nil || !remembers(f.Frontend) {
		return [2]affinePool{}
	}
	id := affinityOf(f.Frontend)
	pools := [2]affinePool{{id, f.Route.Local, f.Route.Endpoints}}
	if f.Outside != nil {
		pools[1] = affinePool{id, true, f.Outside.Endpoints}
	}
	return pools
}

// affine is the endpoints that clients may have affinity to, in cluster or local pools.
type affine struct {
	endpoints *nft.Members[affineEndpoint]
	// gained are endpoints that came from the other kind of pool. Clients keep their
	// affinity to them: the traffic policy changed, not the endpoint.
	gained map[affineEndpoint]struct{}
}

func newAffine(t nft.Table, endpoints string) *affine {
	return &affine{nft.NewMembers(t, endpoints, affineEndpoints, 0), map[affineEndpoint]struct{}{}}
}

// affine returns that of local pools, or of cluster pools.
func (t *table) affine(local bool) *affine {
	if local {
		return t.localAffine
	}
	return t.clusterAffine
}

// replaceAffine replaces the endpoints of a pool.
func (t *table) replaceAffine(old, new affinePool) {
	if old.port == new.port && old.local == new.local {
		t.changeAffine(old.port, old.local, old.endpoints, new.endpoints)
		return
	}
	// The new ones are first, while it is known which were in the other pool.
	t.changeAffine(new.port, new.local, nil, new.endpoints)
	t.changeAffine(old.port, old.local, old.endpoints, nil)
}

func (t *table) changeAffine(id affinityID, local bool, old, new []plan.Endpoint) {
	pool, other := t.affine(local), t.affine(!local)
	for gone, come := range plan.DifferentEndpoints(old, new) {
		switch {
		case come == nil:
			pool.endpoints.Release(affineEndpoint{id, gone.AddrPort})
		case gone == nil:
			at := affineEndpoint{id, come.AddrPort}
			if !pool.endpoints.Has(at) && other.endpoints.Has(at) {
				pool.gained[at] = struct{}{}
			}
			pool.endpoints.Hold(at)
		}
	}
}
