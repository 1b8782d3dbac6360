package kernelspace

import (
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/kernel/hns"
)

// sameSubnets reports whether the pods of other nodes are behind the same addresses. HNS may list the routes in
// another order.
func sameSubnets(a, b []hns.RemoteSubnet) bool {
	sorted := func(all []hns.RemoteSubnet) []hns.RemoteSubnet {
		return slices.SortedFunc(slices.Values(all), func(x, y hns.RemoteSubnet) int {
			return cmp.Or(x.DestinationPrefix.Compare(y.DestinationPrefix), x.ProviderAddress.Compare(y.ProviderAddress))
		})
	}
	return slices.Equal(sorted(a), sorted(b))
}

// endpointID is that of an address in a network; on an overlay it is on a node.
func endpointID(network hns.GUID, ip, node netip.Addr) hns.GUID {
	return hns.NewID("endpoint " + ip.String() + " on " + node.String() + " in " + network.String())
}

// remoteEndpoint returns the endpoint of an address elsewhere; on an overlay it is on a node.
func remoteEndpoint(network hns.GUID, ip, node netip.Addr, mac string) *hns.Endpoint {
	e := &hns.Endpoint{ID: endpointID(network, ip, node), MACAddress: mac, Flags: hns.RemoteEndpoint, IPConfigurations: []hns.IPConfig{{IPAddress: ip}}}
	if node.IsValid() {
		e.Policies = []hns.Policy{hns.ProviderAddress(node)}
	}
	return e
}

// inventMAC returns the hardware address of an endpoint elsewhere: a prefix that CNI plugins use, too,
// and four bytes of the IP address.
func inventMAC(ip netip.Addr) string {
	b := ip.AsSlice()
	if ip.Is6() {
		slices.Reverse(b)
	}
	octets := []string{"02", "11"}
	for _, o := range b[:4] {
		octets = append(octets, hex.EncodeToString([]byte{o}))
	}
	return strings.Join(octets, "-")
}
