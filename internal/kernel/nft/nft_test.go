//go:build linux

package nft

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

func TestElementsAreReadAsWritten(t *testing.T) {
	for _, want := range []Element{
		{Key: []byte{1, 2, 3, 4}},
		{Key: []byte{1, 2, 3, 4}, Data: []byte{10, 0, 0, 1, 0, 80, 0, 0}},
		{Key: []byte{1, 2, 3, 4}, Verdict: Goto("lb-2"), Packets: 7, Bytes: 420},
		{Key: []byte{1, 2, 3, 4}, Verdict: &Verdict{Code: DropCode}},
	} {
		message := attrs(nil).nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(a attrs) attrs { return a.element(&want) })
		n := 0
		err := elementReader(func(got *Element) error {
			n++
			same := bytes.Equal(got.Key, want.Key) && bytes.Equal(got.Data, want.Data) &&
				got.Packets == want.Packets && got.Bytes == want.Bytes && (got.Verdict == nil) == (want.Verdict == nil)
			if !same || want.Verdict != nil && *got.Verdict != *want.Verdict {
				t.Errorf("read %+v, wrote %+v", got, want)
			}
			return nil
		})(message)
		if err != nil || n != 1 {
			t.Errorf("read %d elements, %v", n, err)
		}
	}
}

// Userdata as nft 1.0.6 stores it for the same declarations.
func TestUserdataIsThatOfNft(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   Set
		want string // hexadecimal
	}{
		{"typeof ip daddr . meta l4proto . th dport : verdict", Set{Key: Type{Parts: Concat{DestIP4, Protocol, DestPort}, Typeof: true}, Data: VerdictType},
			"000400000000010400000000034400040d000000013c0014000407000000010c00040c00000001040c000000010e00040900000001060004100000000214000407000000010c00040b00000001040200000004080004010000000100060400000000"},
		{"type ipv4_addr", Set{Key: Type{Parts: Concat{DestIP4}}}, "000402000000"},
		{"type ipv6_addr . inet_proto . inet_service : verdict", Set{Key: Type{Parts: Concat{DestIP6, Protocol, DestPort}}, Data: VerdictType},
			"000400000000010400000000030800040d0000000100060400000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := hex(tc.in.userdata()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

// Parsing does not crash, whatever the kernel sends.
func FuzzAnswers(f *testing.F) {
	e := Element{Key: []byte{1, 2, 3, 4}, Verdict: Goto("lb-2"), Packets: 7}
	f.Add([]byte(attrs(nil).nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(a attrs) attrs { return a.element(&e) })))
	f.Add([]byte(Exprs{}.Jump("x").attrs))
	f.Add([]byte{5, 0, 1, 0, 9})
	f.Add([]byte{0xff, 0xff, 1, 0, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = elementReader(func(e *Element) error {
			if e.Key == nil {
				t.Error("an element without a key was accepted")
			}
			return nil
		})(b)
		parseExpr(b)
		parseTag(b)
		parseTarget(b)
		parseCounter(b)
	})
}
