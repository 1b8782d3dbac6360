//go:build linux

package ctnetlink

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nfnetlink"
)

// encodeEntry is an entry of a client that sends to one address and is answered
// by another, which sees it as a third.
func encodeEntry(p inet.Protocol, client, to, by, seenAs string) []byte {
	b := []byte{unix.NFPROTO_IPV4, 0, 0, 0}
	b = AppendTuple(b, TupleOrig, Flow{p, netip.MustParseAddrPort(client), netip.MustParseAddrPort(to)})
	b = AppendTuple(b, TupleReply, Flow{p, netip.MustParseAddrPort(by), netip.MustParseAddrPort(seenAs)})
	return nfnetlink.AppendAttr(b, ID, []byte{1, 2, 3, 4})
}

func TestDecode(t *testing.T) {
	four := encodeEntry(inet.UDP, "10.0.0.1:4000", "10.96.0.1:53", "10.244.1.1:5353", "10.0.0.1:4000")
	six := encodeEntry(inet.UDP, "[fd00::1]:4000", "[fd00:96::1]:53", "[fd00:244::1]:5353", "[fd00::1]:4000")
	noReply := AppendTuple(make([]byte, 4), TupleOrig,
		Flow{inet.UDP, netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")})
	tests := []struct {
		name   string
		in     []byte
		ok     bool
		to, by string
		zoned  bool
	}{
		{"IPv4", four, true, "10.96.0.1:53", "10.244.1.1:5353", false},
		{"IPv6", six, true, "[fd00:96::1]:53", "[fd00:244::1]:5353", false},
		{"in a zone", nfnetlink.AppendAttr(four, Zone, []byte{0, 7}), true, "10.96.0.1:53", "10.244.1.1:5353", true},
		{"cut in the middle", four[:len(four)/2], false, "", "", false},
		{"without the reply", nfnetlink.AppendAttr(noReply, ID, []byte{1, 2, 3, 4}), false, "", "", false},
		{"without an identity", four[:len(four)-8], false, "", "", false},
		{"no header", four[:3], false, "", "", false},
		{"nothing", nil, false, "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var e Entry
			if ok := e.Decode(tt.in); ok != tt.ok {
				t.Fatalf("decoded: %v", ok)
			}
			if !tt.ok {
				return
			}
			if e.Protocol != inet.UDP || e.To.String() != tt.to || e.By.String() != tt.by || e.Zoned != tt.zoned {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestDecodeTCP(t *testing.T) {
	b := encodeEntry(inet.TCP, "10.0.0.1:4000", "10.96.0.1:80", "10.244.1.1:8080", "192.0.2.10:5000")
	var e Entry
	if !e.Decode(AppendTCPState(b, TCPEstablished)) {
		t.Fatal("not decoded")
	}
	if e.From.String() != "10.0.0.1:4000" || e.ReplyTo.String() != "192.0.2.10:5000" || e.State != TCPEstablished {
		t.Errorf("got %+v", e)
	}
}

// The kernel does not say in which state a connection is that a flow table forwards.
func TestDecodeOffloadedTCP(t *testing.T) {
	b := encodeEntry(inet.TCP, "10.0.0.1:4000", "10.96.0.1:80", "10.244.1.1:8080", "192.0.2.10:5000")
	b = nfnetlink.AppendAttr(b, Status, binary.BigEndian.AppendUint32(nil, SeenReply|Confirmed|Offloaded))
	var e Entry
	if !e.Decode(b) || !e.Offloaded || !e.Replied || !e.Established() {
		t.Errorf("got %+v", e)
	}
}
