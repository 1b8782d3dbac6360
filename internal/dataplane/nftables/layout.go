//go:build linux

package nftables

import (
	"net/netip"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// The table's names. Normally it is the first. If there is a table whose layout this
// version cannot adopt, a new one is built beside it under another name, and the last
// transaction removes the old one. There is a third in case that is interrupted, and
// the next version has another layout again.
var tableNames = tableNamesOf("")

// sideTableOf returns the name of a table beside that of the Services of an instance.
func sideTableOf(what, instance string) string {
	name := tableNames[0] + "-" + what
	if instance != "" {
		name += "." + instance
	}
	return name
}

// tableNamesOf returns the names of the table of an instance. It is behind a dot, which the
// others do not have, so that no instance has a name of another.
func tableNamesOf(instance string) [3]string {
	names := [3]string{"sluice", "sluice-b", "sluice-c"}
	if instance != "" {
		for i := range names {
			names[i] += "." + instance
		}
	}
	return names
}

const tableComment = "made and kept by kube-proxy (Sluice)"

// The sets and maps. Those of node ports have no address in their keys: node ports
// answer on every address of nodePortIPs, or on all local ones.
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
	pools             = "pools"
	sources           = "sources"
	filters           = "filters"
	affinityEndpoints = "affinity-endpoints"
	recalls           = "recall"
	nodePortRecalls   = "nodeport-recall"
	sticky            = "sticky"
	nodePortSticky    = "nodeport-sticky"
	hairpin           = "hairpin"
	clusterIPs        = "cluster-ips"
	nodePortIPs       = "nodeport-ips"
	exclusiveIPs      = "routed-ips"
)

// layout is the part of a table that depends on the family.
type layout struct {
	family       model.Family
	nf           nft.Family
	source, dest nft.Value
	loopback     netip.Prefix
	// uncounted says that elements and rules have no counters.
	uncounted bool
}

var layouts = map[model.Family]*layout{
	model.IPv4: {model.IPv4, nft.IP, nft.SourceIP4, nft.DestIP4, netip.MustParsePrefix("127.0.0.0/8"), false},
	model.IPv6: {model.IPv6, nft.IP6, nft.SourceIP6, nft.DestIP6, netip.MustParsePrefix("::1/128"), false},
}

// layoutFor returns the family's layout, with counters or without.
func layoutFor(f model.Family, uncounted bool) *layout {
	l := *layouts[f]
	l.uncounted = uncounted
	return &l
}

// sets returns the sets of every table in the order in which they are created. Besides there are
// clientMaps.
func (l *layout) sets() []*nft.Set {
	typeof := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts, Typeof: true} }
	plain := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts} }
	number := nft.Random(1 << 16) // for nft(8), which has no type for numbers
	frontend := typeof(l.dest, nft.Protocol, nft.DestPort)
	nodePort := typeof(nft.Protocol, nft.DestPort)
	slot := typeof(l.dest, nft.Protocol, nft.DestPort, number)
	nodePortSlot := typeof(nft.Protocol, nft.DestPort, number)
	endpoint := typeof(l.dest, nft.DestPort)
	affine := typeof(l.dest, nft.DestPort, number, number)
	return []*nft.Set{
		{Name: services, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: nodePorts, Key: nodePort, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: outside, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: nodePortOutside, Key: nodePort, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: endpoints, Key: slot, Data: endpoint},
		{Name: localEndpoints, Key: slot, Data: endpoint},
		{Name: nodePortEndpoints, Key: nodePortSlot, Data: endpoint},
		{Name: nodePortLocal, Key: nodePortSlot, Data: endpoint},
		{Name: pools, Key: typeof(number, number, number), Data: endpoint},
		{Name: sources, Key: typeof(l.dest, nft.DestPort, l.source, number)},
		{Name: filters, Key: frontend, Data: nft.VerdictType, Counter: !l.uncounted},
		{Name: affinityEndpoints, Key: affine},
		{Name: localAffinityEndpoints, Key: affine},
		{Name: recalls, Key: frontend, Data: nft.VerdictType},
		{Name: nodePortRecalls, Key: nodePort, Data: nft.VerdictType},
		{Name: sticky, Key: plain(l.dest, nft.Protocol, nft.DestPort), Data: nft.VerdictType},
		{Name: nodePortSticky, Key: plain(nft.Protocol, nft.DestPort), Data: nft.VerdictType},
		{Name: hairpin, Key: typeof(l.source, l.dest)},
		{Name: clusterIPs, Key: plain(l.dest)},
		{Name: nodePortIPs, Key: plain(l.dest)},
		{Name: exclusiveIPs, Key: plain(l.dest)},
	}
}

// frontendSets are the sets of elements that belong to one frontend each, and how their keys say
// which.
var frontendSets = func() map[string]keyKind {
	all := map[string]keyKind{
		services: byAddress, outside: byAddress, recalls: byAddress, sticky: byAddress, endpoints: byAddress,
		localEndpoints: byAddress, sources: byAddress, filters: byAddress, pools: byAddress,
		nodePorts: byNodePort, nodePortOutside: byNodePort, nodePortRecalls: byNodePort, nodePortSticky: byNodePort,
		nodePortEndpoints: byNodePort, nodePortLocal: byNodePort,
		rangeEndpoints: byRange, rangeLocalEndpoints: byRange, rangeSources: byRange, rangeFilters: byRange,
	}
	for set := range blockMapsByName {
		all[set] = byRange
	}
	return all
}()

// keyKind is how keys identify a frontend.
type keyKind uint8

const (
	byAddress  keyKind = iota // by address, protocol and port
	byNodePort                // by protocol and port
	byRange                   // by address, protocol and the number of a range
)

func kindOf(k plan.Key) keyKind {
	switch {
	case k.NodePort():
		return byNodePort
	case k.IsRange():
		return byRange
	}
	return byAddress
}

// slotMaps are the maps of endpoints.
var slotMaps = map[string]struct{}{endpoints: {}, localEndpoints: {}, nodePortEndpoints: {}, nodePortLocal: {}, pools: {},
	rangeEndpoints: {}, rangeLocalEndpoints: {}}

// affinityEndpointsOf is the set of endpoints in local pools, or in cluster pools.
func affinityEndpointsOf(local bool) string {
	if local {
		return localAffinityEndpoints
	}
	return affinityEndpoints
}

// keyOf is the key of a chain's frontend in the maps of its kind.
func (l *layout) keyOf(c chain) nft.Concat {
	if c.ports != (model.PortRange{}) {
		return nft.Concat{l.dest, nft.Protocol, nft.Constant(rangeNumber(c.ports))}
	}
	return l.frontendKey(c.nodePort)
}

// frontendKey is the key of the services map, or of the nodeports map.
func (l *layout) frontendKey(nodePort bool) nft.Concat {
	if nodePort {
		return nft.Concat{nft.Protocol, nft.DestPort}
	}
	return nft.Concat{l.dest, nft.Protocol, nft.DestPort}
}

// tupleKey is the same for packets that are translated already: it is read from the
// connection.
func (l *layout) tupleKey(nodePort bool) nft.Concat {
	if nodePort {
		return nft.Concat{nft.Protocol, nft.TupleDestPort(nft.Original)}
	}
	return nft.Concat{nft.TupleDest(l.nf, nft.Original), nft.Protocol, nft.TupleDestPort(nft.Original)}
}
