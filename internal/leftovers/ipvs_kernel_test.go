//go:build ipvs

// These tests need a kernel with IPVS and dummy links, and modprobe.

package leftovers

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice/internal/netns/netnstest"
	"sluice/internal/nfnetlink"
)

const (
	ipvsNewService = 1
	serviceFlags   = 7
	serviceTimeout = 8
	serviceNetmask = 9
)

func addVirtualService(t *testing.T, family uint16, key []byte) {
	t.Helper()
	full := nfnetlink.AppendAttr(slices.Clone(key), scheduler, []byte("rr\x00"))
	full = nfnetlink.AppendAttr(full, serviceFlags, make([]byte, 8))
	full = nfnetlink.AppendAttr(full, serviceTimeout, make([]byte, 4))
	full = nfnetlink.AppendAttr(full, serviceNetmask, binary.NativeEndian.AppendUint32(nil, 128))
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: ipvsNewService, Version: ipvsVersion})
	req.AddData(nl.NewRtAttr(ipvsService|unix.NLA_F_NESTED, full))
	if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		t.Fatalf("add an IPVS service: %v", err)
	}
}

// haveIPVS loads IPVS and returns the ID of its netlink family.
func haveIPVS(t *testing.T) uint16 {
	t.Helper()
	for _, module := range []string{"ip_vs", "ip_vs_rr"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			t.Fatalf("load %s: %v: %s", module, err, out)
		}
	}
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		t.Fatal(err)
	}
	return family.ID
}

// addProxyLink adds the link of IPVS mode with these addresses.
func addProxyLink(t *testing.T, cidrs ...string) {
	t.Helper()
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: ipvsLink}}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	for _, cidr := range cidrs {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
}

// addNodePort adds the set of SCTP node ports with one port.
func addNodePort(t *testing.T, port uint16) {
	t.Helper()
	const set = "KUBE-NODE-PORT-SCTP-HASH"
	if err := netlink.IpsetCreate(set, "hash:ip,port", netlink.IpsetCreateOptions{}); err != nil {
		t.Fatal(err)
	}
	protocol := uint8(unix.IPPROTO_SCTP)
	if err := netlink.IpsetAdd(set, &netlink.IPSetEntry{IP: net.IPv4(192, 0, 2, 1).To4(), Port: &port, Protocol: &protocol}); err != nil {
		t.Fatal(err)
	}
}

func serviceNames(t *testing.T, family uint16) []string {
	t.Helper()
	list, err := virtualServices(family)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.String())
	}
	slices.Sort(names)
	return names
}

func TestForeignIPVSServicesStay(t *testing.T) {
	netnstest.Enter(t)
	family := haveIPVS(t)
	addProxyLink(t, "10.96.0.10/32", "fd00:96::a/128")
	addNodePort(t, 30132)

	node := netip.MustParseAddr("192.0.2.1")
	mark := nfnetlink.AppendAttr(nil, serviceFamily, binary.NativeEndian.AppendUint16(nil, unix.AF_INET))
	mark = nfnetlink.AppendAttr(mark, fwmark, binary.NativeEndian.AppendUint32(nil, 7))
	addVirtualService(t, family, mark)
	addVirtualService(t, family, described(unix.AF_INET, unix.IPPROTO_TCP, node, 80))
	want := serviceNames(t, family)
	addVirtualService(t, family, described(unix.AF_INET, unix.IPPROTO_TCP, netip.MustParseAddr("10.96.0.10"), 80))
	addVirtualService(t, family, described(unix.AF_INET6, unix.IPPROTO_UDP, netip.MustParseAddr("fd00:96::a"), 53))
	addVirtualService(t, family, described(unix.AF_INET, unix.IPPROTO_SCTP, node, 30132))

	remove(t, nil)
	if diff := cmp.Diff(want, serviceNames(t, family)); diff != "" || len(want) != 2 {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"lo"}, links(t)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if ports, err := nodePorts(); len(ports) != 0 || err != nil {
		t.Errorf("node ports are still there: %v, %v", ports, err)
	}
}
