package relay

import "net/netip"

// origin is where a connection to an endpoint comes from.
type origin struct {
	client netip.Addr
	// hops is how many routers and relays it may pass, 0 for as many as others.
	hops int
}

// maxHops is how many a client may have left: the usual number.
const maxHops = 64

// next takes a hop off those that a client had left, as a router does, so that a ring of
// Services whose endpoints are addresses of each other ends. It reports whether one is left;
// 0 is a number that is not known, and stays.
func next(hops int) (left int, ok bool) {
	if hops == 0 {
		return 0, true
	}
	left = min(hops, maxHops) - 1
	return left, left > 0
}
