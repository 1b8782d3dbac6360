//go:build linux

package ipvs

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

func TestServicesAreReadAsWritten(t *testing.T) {
	for _, want := range []Service{
		{Key: Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: unix.IPPROTO_TCP}, Scheduler: "rr", Timeout: 7},
		{Key: Key{Addr: netip.MustParseAddr("fd00:96::a"), Port: 53, Protocol: unix.IPPROTO_UDP}, Scheduler: "mh", Flags: Fallback | HashPort},
		{Key: Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 9, Protocol: unix.IPPROTO_SCTP}, Scheduler: "wlc", Flags: Persistent, Timeout: 10800},
		{Key: Key{Addr: netip.IPv4Unspecified(), Mark: 5}, Scheduler: "lc"},
		{Key: Key{Addr: netip.IPv6Unspecified(), Mark: 6}, Scheduler: "lc"},
	} {
		if got := decodeService(encodeService(&want)); got != want {
			t.Errorf("%+v is read as %+v", want, got)
		}
	}
}

func TestDestinationsAreReadAsWritten(t *testing.T) {
	for _, at := range []string{"10.244.0.1:8080", "[fd00:244::1]:8080"} {
		want := Destination{AddrPort: netip.MustParseAddrPort(at), Weight: 65535}
		if got := decodeDest(encodeDest(want), unix.AF_INET); got != want {
			t.Errorf("%+v is read as %+v", want, got)
		}
	}
}

// FuzzDecode parses anything.
func FuzzDecode(f *testing.F) {
	f.Add(encodeService(&Service{Key: Key{Addr: netip.MustParseAddr("fd00::1"), Port: 80, Protocol: 6}, Scheduler: "rr"}))
	f.Add(encodeDest(Destination{AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}))
	f.Add(nfnetlink.AppendAttr(nil, serviceAddr, []byte{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := decodeService(b)
		_ = s.String()
		_ = decodeDest(b, unix.AF_INET6)
	})
}

func TestText(t *testing.T) {
	at := func(ip string, protocol uint8) Key {
		return Key{Addr: netip.MustParseAddr(ip), Port: 80, Protocol: protocol}
	}
	got := Text(map[Service][]Destination{
		{Key: at("fd00::1", unix.IPPROTO_UDP), Scheduler: "mh", Flags: Fallback | HashPort}: {
			{AddrPort: netip.MustParseAddrPort("[fd00::2]:8080"), Weight: 3}},
		{Key: at("10.0.0.1", unix.IPPROTO_TCP), Scheduler: "rr", Flags: Persistent, Timeout: 60}: nil,
		{Key: Key{Addr: netip.IPv4Unspecified(), Mark: 9}, Scheduler: "lc"}:                      nil,
		{Key: at("10.0.0.2", unix.IPPROTO_SCTP), Scheduler: "sh", Flags: Fallback}: {
			{AddrPort: netip.MustParseAddrPort("10.1.0.1:8080")}},
	})
	want := `-A -f 9 -s lc
-A -t 10.0.0.1:80 -s rr -p 60
-A --sctp-service 10.0.0.2:80 -s sh -b sh-fallback
-a --sctp-service 10.0.0.2:80 -r 10.1.0.1:8080 -m -w 0
-A -u [fd00::1]:80 -s mh -b mh-fallback,mh-port
-a -u [fd00::1]:80 -r [fd00::2]:8080 -m -w 3
`
	if got != want {
		t.Errorf("text is\n%swant\n%s", got, want)
	}
}

// A batch is cut between commands.
func TestChunks(t *testing.T) {
	var b Batch
	for range 3000 {
		b.DeleteService(Key{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1, Protocol: 6})
	}
	n, bytes := 0, 0
	for n < b.Len() {
		to := b.chunk(n)
		if size := b.end(to) - b.starts[n]; size > chunkSize+1000 || size == 0 {
			t.Errorf("a chunk of %d bytes", size)
		}
		bytes += b.end(to) - b.starts[n]
		n = to
	}
	if bytes != len(b.buf) {
		t.Errorf("%d bytes in chunks, want %d", bytes, len(b.buf))
	}
}
