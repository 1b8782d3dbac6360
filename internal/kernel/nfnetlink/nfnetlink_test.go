//go:build linux

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

type attr struct {
	Type  uint16
	Value string
}

func collect(b []byte) (list []attr) {
	for typ, v := range Attrs(b) {
		list = append(list, attr{typ, string(v)})
	}
	return list
}

func TestAttributesAreReadAsWritten(t *testing.T) {
	b := AppendAttr(nil, 1, []byte("a"))
	b = AppendAttr(b, 2, nil)
	b = AppendAttr(b, Nested|3, AppendAttr(nil, 4, []byte("four")))
	tests := []struct {
		name string
		in   []byte
		want []attr
	}{
		{"whole", b, []attr{{1, "a"}, {2, ""}, {3, string(AppendAttr(nil, 4, []byte("four")))}}},
		{"cut in the third", b[:len(b)-1], []attr{{1, "a"}, {2, ""}}},
		{"without the padding of the last", b[:5], []attr{{1, "a"}}},
		{"shorter than its header", []byte{3, 0, 1, 0}, nil},
		{"nothing", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, collect(tt.in)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// message returns a message with a payload after both headers.
func message(b []byte, typ uint16, seq uint32, payload string) []byte {
	at := len(b)
	b = AppendNetfilterHeader(b, typ, 5, 2, 10)
	b = append(b, payload...)
	EndMessage(b, at)
	setSeq(b, at, seq)
	return b
}

func TestMessagesAreReadAsWritten(t *testing.T) {
	b := message(message(nil, 16, 7, "four"), 17, 8, "")
	var got []Header
	err := EachMessage(b, func(h Header, payload []byte) error {
		got = append(got, h)
		if want := "\x02\x00\x00\x0a"; string(payload[:GenHeaderLen]) != want {
			t.Errorf("header %q, want %q", payload[:GenHeaderLen], want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	want := []Header{{Type: 16, Flags: 5, Seq: 7}, {Type: 17, Flags: 5, Seq: 8}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	stop := errors.New("enough")
	if err := EachMessage(b, func(Header, []byte) error { return stop }); err != stop {
		t.Errorf("error %v, want that of the caller", err)
	}
	if err := EachMessage(b[:len(b)-1], func(Header, []byte) error { return nil }); err != ErrMalformed {
		t.Errorf("error %v of a message that was cut", err)
	}
}

func TestAckError(t *testing.T) {
	ack := func(code int32, attrs ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(code))
		return append(append(b, make([]byte, HeaderLen)...), attrs...)
	}
	because := AppendAttr(nil, unix.NLMSGERR_ATTR_MSG, []byte("no such thing\x00"))
	tests := []struct {
		name  string
		in    []byte
		flags uint16
		is    error
		text  string
	}{
		{"success", ack(0), 0, nil, ""},
		{"refusal", ack(-int32(unix.ENOENT)), 0, unix.ENOENT, unix.ENOENT.Error()},
		{"refusal with a reason", ack(-int32(unix.ENOENT), because...), unix.NLM_F_ACK_TLVS, unix.ENOENT,
			unix.ENOENT.Error() + " (no such thing)"},
		{"cut", ack(0)[:8], 0, ErrMalformed, ErrMalformed.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := AckError(Header{Flags: tt.flags}, tt.in)
			if !errors.Is(err, tt.is) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			if err != nil && err.Error() != tt.text {
				t.Errorf("error %q, want %q", err, tt.text)
			}
		})
	}
}

// FuzzMessages parses anything.
func FuzzMessages(f *testing.F) {
	f.Add(message(message(nil, 16, 7, string(AppendAttr(nil, 1, []byte("a")))), unix.NLMSG_ERROR, 8, "four"))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = EachMessage(b, func(h Header, payload []byte) error {
			for typ, v := range Attrs(payload) {
				if typ > attrTypeMax || len(v) > len(payload) {
					t.Errorf("attribute %d of %d bytes in %d", typ, len(v), len(payload))
				}
			}
			_ = AckError(h, payload)
			return nil
		})
	})
}
