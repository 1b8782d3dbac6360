package kernelspace

import (
	"net/netip"

	"sluice/internal/kernel/hns"
)

// endpoints are those of the network, and how many load balancers and frontends use them.
type endpoints struct {
	byID map[hns.GUID]*hns.Endpoint
	// at has the one to use for an address: that of a pod on this node before one elsewhere.
	at   map[netip.Addr]*hns.Endpoint
	uses map[hns.GUID]int
	// idle are ours that nothing uses.
	idle map[hns.GUID]struct{}
}

func newEndpoints(all map[hns.GUID]*hns.Endpoint) endpoints {
	e := endpoints{map[hns.GUID]*hns.Endpoint{}, map[netip.Addr]*hns.Endpoint{}, map[hns.GUID]int{}, map[hns.GUID]struct{}{}}
	for _, one := range all {
		e.add(one)
	}
	return e
}

// add adds an endpoint, and returns the addresses for which it is used in place of another one.
func (e *endpoints) add(one *hns.Endpoint) (taken []netip.Addr) {
	e.byID[one.ID] = one
	if one.ID.IsOurs() && e.uses[one.ID] == 0 {
		e.idle[one.ID] = struct{}{}
	}
	for _, ip := range addressesOf(one) {
		old := e.at[ip]
		if old == nil || rank(one) < rank(old) {
			e.at[ip] = one
			if old != nil {
				taken = append(taken, ip)
			}
		}
	}
	return taken
}

// rank orders the endpoints of one address.
func rank(e *hns.Endpoint) int {
	switch {
	case !e.Remote():
		return 0
	case e.ID.IsOurs():
		return 1 // it does not go when another program ends
	}
	return 2
}

// remove forgets an endpoint that is gone.
func (e *endpoints) remove(id hns.GUID) {
	one := e.byID[id]
	if one == nil {
		return
	}
	delete(e.byID, id)
	delete(e.idle, id)
	for _, ip := range addressesOf(one) {
		if e.at[ip] != one {
			continue
		}
		delete(e.at, ip)
		for _, other := range e.byID {
			if at := e.at[ip]; hasAddress(other, ip) && (at == nil || rank(other) < rank(at)) {
				e.at[ip] = other
			}
		}
	}
}

func hasAddress(e *hns.Endpoint, ip netip.Addr) bool {
	for _, own := range addressesOf(e) {
		if own == ip {
			return true
		}
	}
	return false
}

// use notes that one more uses an endpoint, and leave that one does not any more.
func (e *endpoints) use(ids ...hns.GUID) {
	for _, id := range ids {
		e.uses[id]++
		delete(e.idle, id)
	}
}

func (e *endpoints) leave(ids ...hns.GUID) {
	for _, id := range ids {
		if e.uses[id]--; e.uses[id] > 0 {
			continue
		}
		delete(e.uses, id)
		if e.byID[id] != nil && id.IsOurs() {
			e.idle[id] = struct{}{}
		}
	}
}

// needed returns the IDs of those in use.
func (e *endpoints) needed() map[hns.GUID]struct{} {
	out := make(map[hns.GUID]struct{}, len(e.uses))
	for id := range e.uses {
		out[id] = struct{}{}
	}
	return out
}
