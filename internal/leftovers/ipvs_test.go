package leftovers

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/netns/netnstest"
	"sluice/internal/nfnetlink"
)

// described is a service in the kernel's encoding.
func described(family, protocol uint16, address netip.Addr, port uint16) []byte {
	var b []byte
	b = nfnetlink.AppendAttr(b, serviceFamily, binary.NativeEndian.AppendUint16(nil, family))
	b = nfnetlink.AppendAttr(b, serviceProtocol, binary.NativeEndian.AppendUint16(nil, protocol))
	raw := make([]byte, 16)
	copy(raw, address.AsSlice())
	b = nfnetlink.AppendAttr(b, serviceAddress, raw)
	b = nfnetlink.AppendAttr(b, servicePort, binary.BigEndian.AppendUint16(nil, port))
	return b
}

const (
	scheduler = 6 // attributes that are not part of the key
	fwmark    = 5
)

func TestIPVSServicesOfKubeProxy(t *testing.T) {
	addresses := map[netip.Addr]bool{netip.MustParseAddr("10.96.0.10"): true, netip.MustParseAddr("fd00:96::a"): true}
	ports := map[nodePort]bool{{unix.IPPROTO_TCP, 30080}: true}
	service := func(protocol uint16, at string) []byte {
		ap := netip.MustParseAddrPort(at)
		family := uint16(unix.AF_INET)
		if ap.Addr().Is6() {
			family = unix.AF_INET6
		}
		return described(family, protocol, ap.Addr(), ap.Port())
	}
	tests := []struct {
		name string
		in   []byte
		want bool
	}{
		{"a cluster IP", service(unix.IPPROTO_TCP, "10.96.0.10:80"), true},
		{"a cluster IP of IPv6", service(unix.IPPROTO_UDP, "[fd00:96::a]:53"), true},
		{"a node port", service(unix.IPPROTO_TCP, "192.0.2.1:30080"), true},
		{"the port of another protocol", service(unix.IPPROTO_UDP, "192.0.2.1:30080"), false},
		{"a foreign address", service(unix.IPPROTO_TCP, "192.0.2.1:80"), false},
		{"an address of IPv6 that begins like one", service(unix.IPPROTO_TCP, "[0a60:000a::]:80"), false},
		{"a mark", nfnetlink.AppendAttr(nil, fwmark, []byte{0, 0, 0, 1}), false},
		{"nothing", nil, false},
		{"an unknown family", described(unix.AF_UNIX, unix.IPPROTO_TCP, netip.MustParseAddr("10.96.0.10"), 80), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseVirtualService(tt.in).ofKubeProxy(addresses, ports); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestIPVSServiceKey(t *testing.T) {
	key := described(unix.AF_INET, unix.IPPROTO_TCP, netip.MustParseAddr("10.96.0.10"), 80)
	s := parseVirtualService(nfnetlink.AppendAttr(append([]byte(nil), key...), scheduler, []byte("rr\x00")))
	if diff := cmp.Diff(key, s.key); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	if got, want := s.String(), "10.96.0.10:80 protocol 6"; got != want {
		t.Errorf("it is called %q, want %q", got, want)
	}
}

func TestNodePortsFromSets(t *testing.T) {
	netnstest.Enter(t)
	command(t, ipvsSets, "ipset", "restore")
	got, err := nodePorts()
	if err != nil {
		t.Fatal(err)
	}
	want := map[nodePort]bool{
		{unix.IPPROTO_TCP, 30080}: true, {unix.IPPROTO_TCP, 30443}: true,
		{unix.IPPROTO_UDP, 30053}: true, {unix.IPPROTO_SCTP, 30132}: true,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(nodePort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIPv6SetNamesAreTruncated(t *testing.T) {
	tests := map[string]string{
		"KUBE-CLUSTER-IP":                "KUBE-6-CLUSTER-IP",
		"KUBE-LOAD-BALANCER-SOURCE-CIDR": "KUBE-6-LOAD-BALANCER-SOURCE-CID",
		"KUBE-NODE-PORT-LOCAL-SCTP-HASH": "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
	}
	for in, want := range tests {
		if got := ipv6Name(in); got != want {
			t.Errorf("%s is %s for IPv6, want %s", in, got, want)
		}
	}
}
