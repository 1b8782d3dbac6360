package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack/conntracktest"
)

// encodeEntry is an entry of a client that sends to one address and is answered
// by another.
func encodeEntry(client, to, by string, p model.Protocol) []byte {
	b := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleOrig, conntracktest.Tuple(addrPort(client), addrPort(to), p))
	b = nfnetlink.AppendAttr(b, nfnetlink.Nested|cta.TupleReply, conntracktest.Tuple(addrPort(by), addrPort(client), p))
	return nfnetlink.AppendAttr(b, cta.ID, []byte{1, 2, 3, 4})
}

func withZone(b []byte) []byte { return nfnetlink.AppendAttr(b, cta.Zone, []byte{0, 7}) }

func TestDecode(t *testing.T) {
	four := encodeEntry("10.0.0.1:4000", "10.96.0.1:53", "10.244.1.1:5353", model.UDP)
	six := encodeEntry("[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP)
	noReply := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleOrig,
		conntracktest.Tuple(addrPort("10.0.0.1:1"), addrPort("10.0.0.2:2"), model.UDP))
	tests := []struct {
		name   string
		in     []byte
		ok     bool
		to, by string
		zoned  bool
	}{
		{"IPv4", four, true, "10.96.0.1:53", "10.244.1.1:5353", false},
		{"IPv6", six, true, "[fd00:96::1]:53", "[fd00:244::1]:5353", false},
		{"in a zone", withZone(four), true, "10.96.0.1:53", "10.244.1.1:5353", true},
		{"cut in the middle", four[:len(four)/2], false, "", "", false},
		{"without the reply", nfnetlink.AppendAttr(noReply, cta.ID, []byte{1, 2, 3, 4}), false, "", "", false},
		{"without an identity", four[:len(four)-8], false, "", "", false},
		{"nothing", nil, false, "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f flow
			if ok := f.decode(unix.NFPROTO_IPV4, tt.in); ok != tt.ok {
				t.Fatalf("decoded: %v", ok)
			}
			if !tt.ok {
				return
			}
			if f.protocol != model.UDP || f.to != addrPort(tt.to) || f.by != addrPort(tt.by) || f.zoned != tt.zoned {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	entry := withZone(encodeEntry("[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP))
	x := node(frontend("[fd00:96::1]:53", "[fd00:244::1]:5353"))
	var f flow
	allocs := testing.AllocsPerRun(100, func() {
		if !f.decode(unix.NFPROTO_IPV6, entry) || x.stale(&f) {
			t.Fatal("not decoded, or stale")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for each entry", allocs)
	}
}

func TestDecodeTCP(t *testing.T) {
	b := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleOrig, conntracktest.Tuple(addrPort("10.0.0.1:4000"), addrPort("10.96.0.1:80"), model.TCP))
	b = nfnetlink.AppendAttr(b, nfnetlink.Nested|cta.TupleReply, conntracktest.Tuple(addrPort("10.244.1.1:8080"), addrPort("192.0.2.10:5000"), model.TCP))
	b = nfnetlink.AppendAttr(b, nfnetlink.Nested|cta.ProtoInfo, conntracktest.ProtoInfo(cta.TCPEstablished))
	b = nfnetlink.AppendAttr(b, cta.ID, []byte{1, 2, 3, 4})
	var f flow
	if !f.decode(unix.NFPROTO_IPV4, b) {
		t.Fatal("not decoded")
	}
	if f.from != addrPort("10.0.0.1:4000") || f.replyTo != addrPort("192.0.2.10:5000") || f.state != cta.TCPEstablished {
		t.Errorf("got %+v", f)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(unix.NFPROTO_IPV4), encodeEntry("10.0.0.1:4000", "10.96.0.1:53", "10.244.1.1:5353", model.UDP))
	f.Add(uint8(unix.NFPROTO_IPV6), withZone(encodeEntry("[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", model.UDP)))
	f.Add(uint8(unix.NFPROTO_IPV4), encodeEntry("10.0.0.1:1", "10.0.0.2:2", "10.0.0.2:2", model.TCP))
	f.Add(uint8(unix.NFPROTO_IPV4), nfnetlink.AppendAttr(encodeEntry("10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:2", model.TCP),
		nfnetlink.Nested|cta.ProtoInfo, conntracktest.ProtoInfo(cta.TCPEstablished)))
	f.Add(uint8(0), []byte{3, 0, 1, 0})
	f.Add(uint8(0), []byte{255, 255, 1, 128, 0})
	x := node(frontend("10.96.0.1:53", "10.244.1.1:5353"), frontend("0.0.0.0:30053"), tcpFrontend("10.0.0.2:2"))
	x.remove(udp("10.96.0.2:53"))
	f.Fuzz(func(t *testing.T, family uint8, attrs []byte) {
		var entry flow
		if !entry.decode(family, attrs) {
			return
		}
		if !entry.to.IsValid() || !entry.by.IsValid() || len(entry.tuple) == 0 || len(entry.id) == 0 {
			t.Errorf("incomplete: %+v", entry)
		}
		x.stale(&entry)
	})
}
