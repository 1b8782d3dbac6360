//go:build linux

package nft

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestElementsAreListed(t *testing.T) {
	frontend := Type{Parts: Concat{DestIP4, Protocol, DestPort}}
	tests := []struct {
		name string
		set  Set
		in   Element
		want string
	}{
		{"member", Set{Key: Type{Parts: Concat{DestIP6}}}, Element{Key: netip.MustParseAddr("2001:db8::1").AsSlice()}, "2001:db8::1"},
		{"verdict", Set{Key: frontend, Data: VerdictType, Counter: true},
			Element{Key: []byte{10, 0, 0, 1, 17, 0, 0, 0, 0, 53, 0, 0}, Verdict: Goto("x"), Packets: 3, Bytes: 9},
			"10.0.0.1 . udp . 53 counter packets 3 bytes 9 : goto x"},
		{"value", Set{Key: Type{Parts: Concat{Protocol}}, Data: Type{Parts: Concat{DestIP4, DestPort}}},
			Element{Key: []byte{99, 0, 0, 0}, Data: []byte{10, 0, 0, 2, 31, 144, 0, 0}}, "99 : 10.0.0.2 . 8080"},
		{"cut short", Set{Key: frontend}, Element{Key: []byte{10, 0}}, "0x0a00 .  . "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.set.Text(&test.in); got != test.want {
				t.Errorf("it is listed as %q, want %q", got, test.want)
			}
		})
	}
}

func TestPriorityNames(t *testing.T) {
	tests := []struct {
		hook     uint32
		priority int32
		want     string
	}{
		{unix.NF_INET_PRE_ROUTING, -100, "dstnat"},
		{unix.NF_INET_LOCAL_OUT, -100, "-100"},
		{unix.NF_INET_POST_ROUTING, 99, "srcnat - 1"},
		{unix.NF_INET_POST_ROUTING, 110, "srcnat + 10"},
		{unix.NF_INET_POST_ROUTING, 111, "111"},
		{unix.NF_INET_FORWARD, 0, "filter"},
	}
	for _, test := range tests {
		var b strings.Builder
		l := NewListing(&b)
		l.Chain(Chain{Name: "c", Type: "nat", Hook: test.hook, Priority: test.priority}, nil)
		if err := l.Flush(); err != nil || !strings.Contains(b.String(), " priority "+test.want+"; ") {
			t.Errorf("hook %d, priority %d, %v:\n%s", test.hook, test.priority, err, b.String())
		}
	}
}
