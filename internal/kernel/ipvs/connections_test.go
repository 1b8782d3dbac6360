//go:build linux

package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestConnectionsAreParsed(t *testing.T) {
	const file = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0000201 D431 0A60000A 0050 0AF40001 1F90 ESTABLISHED     899
UDP fd00:0096:0000:0000:0000:0000:0000:000a 8AE1 fd00:0096:0000:0000:0000:0000:0000:000a 0035 fd00:0010:0244:0000:0000:0000:0000:0002 0035 UDP             299
TCP C0000201 0000 0A60000A 0050 0AF40001 1F90 NONE            299
SCTP C0000201 D432 0A60000A 0050 0AF40001 1F90 ESTABLISHED     899
AH  C0000201 D432 0A60000A 0050 0AF40001 1F90 NONE            899
TCP C0000201 D4310 0A60000A 0050 0AF40001 1F90 ESTABLISHED     899
TCP C00002 D431 0A60000A 0050 0AF40001 1F90 ESTABLISHED     899
TCP C0000201 D431 0A60000A 0050 0AF400 1F90 ESTABLISHED     899
TCP
`
	key := func(at string, protocol uint8) Key {
		ap := netip.MustParseAddrPort(at)
		return Key{Addr: ap.Addr(), Port: ap.Port(), Protocol: protocol}
	}
	got, err := parseConnections(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Connection{
		{netip.MustParseAddrPort("192.0.2.1:54321"), key("10.96.0.10:80", unix.IPPROTO_TCP), netip.MustParseAddrPort("10.244.0.1:8080")},
		{netip.MustParseAddrPort("[fd00:96::a]:35553"), key("[fd00:96::a]:53", unix.IPPROTO_UDP), netip.MustParseAddrPort("[fd00:10:244::2]:53")},
		{netip.MustParseAddrPort("192.0.2.1:54322"), key("10.96.0.10:80", unix.IPPROTO_SCTP), netip.MustParseAddrPort("10.244.0.1:8080")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b Connection) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
