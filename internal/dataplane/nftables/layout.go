package nftables

import (
	"encoding/binary"
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// The table's names. Normally it is the first. When a table is there whose
// layout this version cannot adopt, a new one is built beside it under another
// name, and the old one goes with the last step of building. There is a third in
// case that is cut short and another layout comes.
var tableNames = [3]string{"sluice", "sluice-b", "sluice-c"}

const tableComment = "made and kept by kube-proxy (Sluice)"

// The sets and maps. Those of node ports lack the address in their keys: node
// ports answer on every address of nodePortIPs, or on all that are local.
const (
	localAffinityEndpoints = "local-affinity-endpoints"

	services          = "services"
	nodePorts         = "nodeports"
	outside           = "outside"
	nodePortOutside   = "nodeport-outside"
	endpoints         = "endpoints"
	localEndpoints    = "local-endpoints"
	nodePortEndpoints = "nodeport-endpoints"
	nodePortLocal     = "nodeport-local-endpoints"
	sources           = "sources"
	filters           = "filters"
	affinity          = "affinity"
	localAffinity     = "local-affinity"
	affinityEndpoints = "affinity-endpoints"
	recalls           = "recall"
	nodePortRecalls   = "nodeport-recall"
	sticky            = "sticky"
	nodePortSticky    = "nodeport-sticky"
	hairpin           = "hairpin"
	clusterIPs        = "cluster-ips"
	nodePortIPs       = "nodeport-ips"
)

const (
	// affinitySize bounds how many clients are remembered at a time. When it is
	// reached, further ones are served without affinity.
	affinitySize = 1 << 20
	// wordLen is the length of a register, to which shorter values are padded.
	wordLen = 4
)

// layout is what depends on the family.
type layout struct {
	family           model.Family
	nf               nft.Family
	source, dest     nft.Part
	addrLen          int
	sourceAt, destAt uint32 // offsets in the network header
	loopback         netip.Prefix
}

var layouts = map[model.Family]*layout{
	model.IPv4: {model.IPv4, nft.IP, nft.SourceIP4, nft.DestIP4, 4, 12, 16, netip.MustParsePrefix("127.0.0.0/8")},
	model.IPv6: {model.IPv6, nft.IP6, nft.SourceIP6, nft.DestIP6, 16, 8, 24, netip.MustParsePrefix("::1/128")},
}

// sets lists the table's sets in the order they are made.
func (l *layout) sets() []*nft.Set {
	typeof := func(parts ...nft.Part) nft.Type { return nft.Type{Parts: parts, Typeof: true} }
	plain := func(parts ...nft.Part) nft.Type { return nft.Type{Parts: parts} }
	frontend := typeof(l.dest, nft.Protocol, nft.DestPort)
	nodePort := typeof(nft.Protocol, nft.DestPort)
	slot := typeof(l.dest, nft.Protocol, nft.DestPort, nft.Random)
	nodePortSlot := typeof(nft.Protocol, nft.DestPort, nft.Random)
	endpoint := typeof(l.dest, nft.DestPort)
	client := typeof(l.source, nft.Random, nft.Random)
	affine := typeof(l.dest, nft.DestPort, nft.Random, nft.Random)
	return []*nft.Set{
		{Name: services, Key: frontend, Data: nft.VerdictType, Counter: true},
		{Name: nodePorts, Key: nodePort, Data: nft.VerdictType, Counter: true},
		{Name: outside, Key: frontend, Data: nft.VerdictType, Counter: true},
		{Name: nodePortOutside, Key: nodePort, Data: nft.VerdictType, Counter: true},
		{Name: endpoints, Key: slot, Data: endpoint},
		{Name: localEndpoints, Key: slot, Data: endpoint},
		{Name: nodePortEndpoints, Key: nodePortSlot, Data: endpoint},
		{Name: nodePortLocal, Key: nodePortSlot, Data: endpoint},
		{Name: sources, Key: typeof(l.dest, nft.DestPort, l.source, nft.Random)},
		{Name: filters, Key: frontend, Data: nft.VerdictType, Counter: true},
		{Name: affinity, Key: client, Data: endpoint, Dynamic: true, Size: affinitySize},
		{Name: localAffinity, Key: client, Data: endpoint, Dynamic: true, Size: affinitySize},
		{Name: affinityEndpoints, Key: affine},
		{Name: localAffinityEndpoints, Key: affine},
		{Name: recalls, Key: frontend, Data: nft.VerdictType},
		{Name: nodePortRecalls, Key: nodePort, Data: nft.VerdictType},
		{Name: sticky, Key: plain(l.dest, nft.Protocol, nft.DestPort), Data: nft.VerdictType},
		{Name: nodePortSticky, Key: plain(nft.Protocol, nft.DestPort), Data: nft.VerdictType},
		{Name: hairpin, Key: typeof(l.source, l.dest)},
		{Name: clusterIPs, Key: plain(l.dest)},
		{Name: nodePortIPs, Key: plain(l.dest)},
	}
}

// affinityMap is the map of clients of the cluster's pools, or of the local ones.
func affinityMap(local bool) string {
	if local {
		return localAffinity
	}
	return affinity
}

// arena hands out small byte strings without an allocation for each.
type arena []byte

func (a *arena) cut(from int) []byte { return (*a)[from:len(*a):len(*a)] }

func (a *arena) addr(ip netip.Addr) {
	if ip.Is4() {
		b := ip.As4()
		*a = append(*a, b[:]...)
	} else {
		b := ip.As16()
		*a = append(*a, b[:]...)
	}
}

func (a *arena) protocol(p model.Protocol) { *a = append(*a, byte(p), 0, 0, 0) }
func (a *arena) port(p uint16)             { *a = append(*a, byte(p>>8), byte(p), 0, 0) }

// word is a number in host order, as numgen has it.
func (a *arena) word(n uint32) { *a = binary.NativeEndian.AppendUint32(*a, n) }

func (a *arena) frontend(k plan.Key) {
	if !k.NodePort() {
		a.addr(k.Addr)
	}
	a.protocol(k.Protocol)
	a.port(k.Port)
}

// frontendKey encodes the key of a frontend in services, outside and sticky.
func (a *arena) frontendKey(k plan.Key) []byte {
	at := len(*a)
	a.frontend(k)
	return a.cut(at)
}

// slotKey encodes the key of an endpoint.
func (a *arena) slotKey(k plan.Key, index int) []byte {
	at := len(*a)
	a.frontend(k)
	a.word(uint32(index))
	return a.cut(at)
}

// endpoint encodes an endpoint as a map's value.
func (a *arena) endpoint(ep netip.AddrPort) []byte {
	at := len(*a)
	a.addr(ep.Addr())
	a.port(ep.Port())
	return a.cut(at)
}

func (a *arena) address(ip netip.Addr) []byte {
	at := len(*a)
	a.addr(ip)
	return a.cut(at)
}

func (a *arena) affinityID(id affinityID) {
	for _, word := range id.words() {
		a.word(word)
	}
}

// clientKey encodes a client that is remembered.
func (a *arena) clientKey(client netip.Addr, id affinityID) []byte {
	at := len(*a)
	a.addr(client)
	a.affinityID(id)
	return a.cut(at)
}

func (a *arena) affineEndpoint(e affineEndpoint) []byte {
	at := len(*a)
	a.endpoint(e.AddrPort)
	a.affinityID(e.port)
	return a.cut(at)
}

func (a *arena) hairpinKey(ip netip.Addr) []byte {
	at := len(*a)
	a.addr(ip)
	a.addr(ip)
	return a.cut(at)
}

// decoder reads keys and values back. It fails softly: what does not fit is
// not ours, and is removed as such.
type decoder struct {
	l  *layout
	b  []byte
	ok bool
}

func (l *layout) decode(b []byte) *decoder { return &decoder{l: l, b: b, ok: true} }

func (d *decoder) take(n int) []byte {
	if len(d.b) < n {
		d.ok = false
		return make([]byte, n)
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) addr() netip.Addr {
	ip, _ := netip.AddrFromSlice(d.take(d.l.addrLen))
	return ip
}

func (d *decoder) protocol() model.Protocol { return model.Protocol(d.take(wordLen)[0]) }
func (d *decoder) port() uint16             { return binary.BigEndian.Uint16(d.take(wordLen)) }
func (d *decoder) index() int               { return int(binary.NativeEndian.Uint32(d.take(wordLen))) }

func (d *decoder) affinityID() affinityID {
	high, low := d.index(), d.index()
	return affinityID(high)<<32 | affinityID(low)
}

func (d *decoder) endpoint() netip.AddrPort {
	ip := d.addr()
	return netip.AddrPortFrom(ip, d.port())
}

// hairpin reads an address that is there twice.
func (d *decoder) hairpin() netip.Addr {
	ip := d.addr()
	d.ok = d.addr() == ip && d.ok
	return ip
}

func (d *decoder) affineEndpoint() affineEndpoint {
	ep := d.endpoint()
	return affineEndpoint{d.affinityID(), ep}
}

// frontend reads a key; that of a node port has no address.
func (d *decoder) frontend(nodePort bool) plan.Key {
	k := plan.NodePortKey(d.l.family, 0, 0)
	if !nodePort {
		k.Addr = d.addr()
	}
	k.Protocol = d.protocol()
	k.Port = d.port()
	return k
}

func (d *decoder) done() bool { return d.ok && len(d.b) == 0 }
