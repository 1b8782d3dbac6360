//go:build linux

package nftables

import (
	"net/netip"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// arena encodes keys and values of our maps and sets.
type arena struct{ nft.Arena }

func (a *arena) reset() { a.Arena = a.Arena[:0] }

func (a *arena) frontend(k plan.Key) {
	if !k.NodePort() {
		a.Addr(k.Addr)
	}
	a.Protocol(byte(k.Protocol))
	a.ports(k)
}

// ports encodes the port of a key, or the number of its range.
func (a *arena) ports(k plan.Key) {
	if k.IsRange() {
		a.Word(rangeNumber(k.Ports()))
	} else {
		a.Port(k.Port)
	}
}

// frontendKey encodes the key of a frontend in services, outside and sticky.
func (a *arena) frontendKey(k plan.Key) []byte {
	at := len(a.Arena)
	a.frontend(k)
	return a.Cut(at)
}

// slotKey encodes the key of an endpoint.
func (a *arena) slotKey(k plan.Key, index int) []byte {
	at := len(a.Arena)
	if isPool(k) {
		poolID(k).encode(&a.Arena)
	} else {
		a.frontend(k)
	}
	a.Word(uint32(index))
	return a.Cut(at)
}

// endpoint encodes an endpoint as the value of a map.
func (a *arena) endpoint(ep netip.AddrPort) []byte {
	at := len(a.Arena)
	a.Addr(ep.Addr())
	a.Port(ep.Port())
	return a.Cut(at)
}

// clientKey encodes a client that is remembered.
func (a *arena) clientKey(client netip.Addr, id affinityID) []byte {
	at := len(a.Arena)
	a.Addr(client)
	id.encode(&a.Arena)
	return a.Cut(at)
}

// The sets whose elements frontends share.
var (
	addresses = nft.MemberType[netip.Addr]{Key: addressKey, Decode: (*nft.Decoder).Addr, Compare: netip.Addr.Compare}
	hairpins  = nft.MemberType[netip.Addr]{Key: hairpinKey, Decode: decodeHairpin, Compare: netip.Addr.Compare}
)

func addressKey(a *nft.Arena, ip netip.Addr) []byte {
	at := len(*a)
	a.Addr(ip)
	return a.Cut(at)
}

// hairpinKey is the address twice: as source and as destination.
func hairpinKey(a *nft.Arena, ip netip.Addr) []byte {
	at := len(*a)
	a.Addr(ip)
	a.Addr(ip)
	return a.Cut(at)
}

func decodeHairpin(d *nft.Decoder) netip.Addr {
	ip := d.Addr()
	d.Check(d.Addr() == ip)
	return ip
}

// decoder reads keys and values. What does not fit is not ours, and is removed.
type decoder struct {
	nft.Decoder
	family model.Family
}

func (l *layout) decode(b []byte) *decoder { return &decoder{nft.NewDecoder(l.nf, b), l.family} }

func (d *decoder) index() int { return int(d.Word()) }

func (d *decoder) endpoint() netip.AddrPort { return decodeEndpoint(&d.Decoder) }

func decodeEndpoint(d *nft.Decoder) netip.AddrPort {
	ip := d.Addr()
	return netip.AddrPortFrom(ip, d.Port())
}

// frontend reads a key; that of a node port has no address.
func (d *decoder) frontend(of keyKind) plan.Key {
	k := plan.NodePortKey(d.family, 0, 0)
	if of != byNodePort {
		k.Addr = d.Addr()
	}
	k.Protocol = model.Protocol(d.Protocol())
	if of == byRange {
		d.rangeOf(&k)
	} else {
		k.Port = d.Port()
	}
	return k
}
