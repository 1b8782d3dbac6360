//go:build linux

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/kernel/nft"
)

// Clients are remembered in maps that rules write: all their contents are right. There are many,
// each for the service ports whose number begins alike: the kernel looks at all rules that use a map
// when another one comes, and dumps a map in a time that grows with the square of its size. A map is
// there while a chain needs it.

// clientMap identifies one of these maps: its clients are those of cluster pools, or of local ones.
type clientMap struct {
	local bool
	part  uint8
}

const (
	// partBits are how many bits of the number of a service port say in which maps its clients are.
	partBits = 7
	// clientMapSize limits how many clients a map remembers at a time. Further ones are served without
	// affinity.
	clientMapSize = 1 << 17
)

// clientMap is the one for clients of the service port.
func (id affinityID) clientMap(local bool) clientMap {
	return clientMap{local, uint8(id >> (64 - partBits))}
}

// other is the one for clients of the same service ports in the other kind of pool.
func (m clientMap) other() clientMap { return clientMap{!m.local, m.part} }

const clientMapPrefix = "clients-"

func (m clientMap) name() string {
	name := fmt.Sprintf("%s%02x", clientMapPrefix, m.part)
	if m.local {
		name = "local-" + name
	}
	return name
}

// isClientMap reports whether a set has the name of a map of clients.
func isClientMap(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "local-"), clientMapPrefix)
}

// clientMap returns the map of that name.
func (l *layout) clientMap(name string) *nft.Set {
	number := nft.Random(1 << 16)
	return &nft.Set{
		Name:    name,
		Key:     nft.Type{Parts: nft.Concat{l.source, number, number}, Typeof: true},
		Data:    nft.Type{Parts: nft.Concat{l.dest, nft.DestPort}, Typeof: true},
		Dynamic: true, Size: clientMapSize,
	}
}

// addClientMap adds a map of clients. The kernel allocates it at its full size, megabytes, and makes
// it as small as its contents when an element is removed.
func (t *table) addClientMap(b *nft.Batch, name string) {
	b.AddSet(t.Table, t.clientMap(name))
	var a arena
	nobody := netip.IPv4Unspecified()
	if t.nf == nft.IP6 {
		nobody = netip.IPv6Unspecified()
	}
	e := nft.Element{Key: a.clientKey(nobody, 0), Data: a.endpoint(netip.AddrPortFrom(nobody, 0))}
	b.AddElement(t.Table, name, &e, 0)
	b.DeleteElement(t.Table, name, &e, 0)
}

// The mirror has maps of clients among the chains: they too are there while a chain needs them.

// object is the description of the map for the mirror.
func (m clientMap) object() chain { return chain{kind: remembered, local: m.local, part: m.part} }

// clientMap is the map that a description is of.
func (c chain) clientMap() clientMap { return clientMap{c.local, c.part} }

// mapMark begins the names of maps in the mirror, as nft(8) writes them in rules. No chain of ours has
// such a name.
const mapMark = "@"

// takeClientMaps puts maps of clients among the chains that were read, and returns the other sets. It
// reports whether they are as in our layout.
func (k *contents) takeClientMaps(l *layout, have []nft.SetInfo) (rest []nft.SetInfo, ours bool) {
	ours = true
	rest = slices.DeleteFunc(have, func(i nft.SetInfo) bool {
		if !isClientMap(i.Name) {
			return false
		}
		ours = ours && l.clientMap(i.Name).Matches(i)
		name := mapMark + i.Name
		k.chains[name] = nft.Chain{Name: name}
		return true
	})
	return rest, ours
}
