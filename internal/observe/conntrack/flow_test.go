//go:build linux

package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// encodeEntry is an entry of a client that sends to one address and is answered
// by another.
func encodeEntry(family uint8, client, to, by string, p model.Protocol) []byte {
	b := []byte{family, 0, 0, 0}
	b = ctnetlink.AppendTuple(b, ctnetlink.TupleOrig, ctnetlink.Flow{Protocol: p, From: addrPort(client), To: addrPort(to)})
	b = ctnetlink.AppendTuple(b, ctnetlink.TupleReply, ctnetlink.Flow{Protocol: p, From: addrPort(by), To: addrPort(client)})
	return nfnetlink.AppendAttr(b, ctnetlink.ID, []byte{1, 2, 3, 4})
}

func withZone(b []byte) []byte { return nfnetlink.AppendAttr(b, ctnetlink.Zone, []byte{0, 7}) }

func TestDecodeAllocatesNothing(t *testing.T) {
	entry := withZone(encodeEntry(unix.NFPROTO_IPV6, "[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP))
	x := node(frontend("[fd00:96::1]:53", "[fd00:244::1]:5353"))
	var f flow
	allocs := testing.AllocsPerRun(100, func() {
		if !f.Decode(entry) || x.stale(&f) {
			t.Fatal("not decoded, or stale")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for each entry", allocs)
	}
}

// FuzzDecode decides about anything that the kernel could send.
func FuzzDecode(f *testing.F) {
	f.Add(encodeEntry(unix.NFPROTO_IPV4, "10.0.0.1:4000", "10.96.0.1:53", "10.244.1.1:5353", model.UDP))
	f.Add(withZone(encodeEntry(unix.NFPROTO_IPV6, "[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP)))
	f.Add(encodeEntry(unix.NFPROTO_IPV4, "10.0.0.1:1", "10.0.0.2:2", "10.0.0.2:2", model.TCP))
	f.Add(ctnetlink.AppendTCPState(encodeEntry(unix.NFPROTO_IPV4, "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:2", model.TCP), ctnetlink.TCPEstablished))
	f.Add([]byte{0, 0, 0, 0, 3, 0, 1, 0})
	f.Add([]byte{0, 0, 0, 0, 255, 255, 1, 128, 0})
	f.Add([]byte{unix.NFPROTO_IPV6})
	x := node(frontend("10.96.0.1:53", "10.244.1.1:5353"), frontend("0.0.0.0:30053"), tcpFrontend("10.0.0.2:2"))
	x.remove(udp("10.96.0.2:53"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		s := sweeper{stale: x.stale}
		if err := s.look(anyKind, payload); err != nil || s.seen != 1 {
			t.Errorf("%v, %d entries were seen", err, s.seen)
		}
		entry := s.flow
		if !entry.Decode(payload) {
			return
		}
		if !entry.To.IsValid() || !entry.By.IsValid() || len(entry.Tuple) == 0 || len(entry.ID) == 0 {
			t.Errorf("incomplete: %+v", entry)
		}
		entry.connection()
	})
}
