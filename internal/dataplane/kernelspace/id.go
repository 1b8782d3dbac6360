package kernelspace

import (
	"bytes"
	"crypto/sha256"
	"net/netip"

	"sluice/internal/kernel/hns"
)

// mark is what the IDs of our objects begin with.
var mark = []byte("sluice")

// newID returns the ID of an object from what it is for. It has the form of RFC 9562 for IDs with a
// meaning of their own, version 8.
func newID(purpose string) (g hns.GUID) {
	sum := sha256.Sum256([]byte(purpose))
	copy(g[copy(g[:], mark):], sum[:])
	g[6], g[8] = g[6]&0x0f|0x80, g[8]&0x3f|0x80
	return g
}

// ours reports whether an object is one of this proxy's.
func ours(g hns.GUID) bool { return bytes.HasPrefix(g[:], mark) && g[6]>>4 == 8 }

// endpointID is that of an address in a network; on an overlay it is on a node.
func endpointID(network hns.GUID, ip, node netip.Addr) hns.GUID {
	return newID("endpoint " + ip.String() + " on " + node.String() + " in " + network.String())
}
