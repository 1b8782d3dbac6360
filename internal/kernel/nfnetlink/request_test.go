//go:build linux

package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns/netnstest"
)

// addresses is so many that the kernel sends them in several datagrams.
const addresses = 3000

// dialRoute opens a socket for routing in a namespace with addresses.
func dialRoute(t *testing.T) (*netnstest.Namespace, *Conn) {
	t.Helper()
	ns := netnstest.New(t)
	var commands strings.Builder
	for i := range addresses {
		fmt.Fprintf(&commands, "address add 10.1.%d.%d/32 dev lo\n", i/250, i%250+1)
	}
	ns.Run(t, commands.String(), "ip", "-batch", "-")
	c, err := DialRoute(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return ns, c
}

// getAddresses requests all addresses of IPv4.
func getAddresses() []byte {
	return append(AppendHeader(nil, unix.RTM_GETADDR, 0), unix.AF_INET, 0, 0, 0, 0, 0, 0, 0)
}

// deleteLink deletes a link by its index.
func deleteLink(b []byte, index int32, flags uint16) []byte {
	at := len(b)
	b = append(AppendHeader(b, unix.RTM_DELLINK, flags), unix.AF_UNSPEC, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	EndMessage(b, at)
	return b
}

// A dump that somebody gives up leaves nothing to the next request.
func TestDumpsEndEarly(t *testing.T) {
	_, c := dialRoute(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancel(t.Context())
	for name, give := range map[string]struct {
		up   func() error
		want error
	}{
		"by an error":          {func() error { return enough }, enough},
		"because ctx was done": {func() error { cancel(); return nil }, context.Canceled},
	} {
		if err := c.Dump(ctx, getAddresses(), func([]byte) error { return give.up() }); !errors.Is(err, give.want) {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		seen := 0
		if err := c.Dump(ctx, getAddresses(), func([]byte) error { seen++; return nil }); err != nil || seen != addresses {
			t.Errorf("the dump after one that ended %s: %v, %d addresses", name, err, seen)
		}
		if err := c.Dump(ctx, getAddresses(), func([]byte) error { return enough }); err != enough {
			t.Error(err)
		}
		if err := c.Do(deleteLink(nil, 4711, 0), nil); !errors.Is(err, unix.ENODEV) {
			t.Errorf("a request after a dump that ended %s: %v", name, err)
		}
	}
	cancel()
}

func TestDumpIsInterrupted(t *testing.T) {
	ns, c := dialRoute(t)
	seen := 0
	err := c.Dump(t.Context(), getAddresses(), func([]byte) error {
		if seen++; seen == 1 {
			ns.Run(t, "", "ip", "address", "add", "10.2.0.1/32", "dev", "lo")
		}
		return nil
	})
	if !errors.Is(err, ErrInterrupted) || seen < addresses {
		t.Errorf("%v, after %d addresses", err, seen)
	}
}

func TestBatchReportsEachRefusal(t *testing.T) {
	_, c := dialRoute(t)
	type answer struct {
		I   int
		Err string
	}
	const none, loopback = 4711, 1
	for range 2 {
		b := deleteLink(nil, none, 0)
		b = deleteLink(b, none+1, unix.NLM_F_ACK)
		b = deleteLink(b, loopback, 0)
		RequestAck(b, len(b)-32)
		var got []answer
		err := c.Batch(b, func(i int, err error) bool {
			got = append(got, answer{i, err.Error()})
			return false
		})
		want := []answer{{0, unix.ENODEV.Error()}, {1, unix.ENODEV.Error()}, {2, unix.EOPNOTSUPP.Error()}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// FuzzAnswers gets anything as the answer to a dump, and to a batch.
func FuzzAnswers(f *testing.F) {
	const seq = 7
	ack := func(code int32) string {
		return string(binary.NativeEndian.AppendUint32(nil, uint32(code))) + string(make([]byte, HeaderLen))
	}
	raw := func(typ uint16, seq uint32, payload string) []byte {
		b := append(AppendHeader(nil, typ, 0), payload...)
		EndMessage(b, 0)
		setSeq(b, 0, seq)
		return b
	}
	entry := raw(16, seq, "\x02\x00\x00\x00four")
	f.Add(append(entry, raw(unix.NLMSG_DONE, seq, "\x00\x00\x00\x00")...))
	f.Add(append(entry, raw(unix.NLMSG_DONE, seq, "\xff\xff\xff\xff")...))
	f.Add(append(entry, raw(unix.NLMSG_DONE, seq, "")...))
	f.Add(entry[:len(entry)-3])
	f.Add(raw(16, seq, "\x02"))
	f.Add(raw(16, seq+1, "\x02\x00\x00\x00four"))
	f.Add(raw(unix.NLMSG_ERROR, seq, ack(0)))
	f.Add(raw(unix.NLMSG_ERROR, seq, ack(-2)))
	f.Add(raw(unix.NLMSG_ERROR, seq+1, ack(-1<<31)))
	f.Add(raw(unix.NLMSG_ERROR, seq, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, answers := 0, 0
		a := answer{seq: seq, each: func(payload []byte) error {
			if answers++; len(payload) < GenHeaderLen {
				t.Errorf("an answer of %d bytes", len(payload))
			}
			return nil
		}}
		_ = EachMessage(b, func(h Header, payload []byte) error { messages++; return a.add(h, payload) })
		if answers > messages {
			t.Errorf("%d answers in %d messages", answers, messages)
		}
		batch := acks{first: seq - 1, count: 2, last: 1, f: func(i int, _ error) bool {
			if i < 0 || i > 1 {
				t.Errorf("message %d of two is answered", i)
			}
			return false
		}}
		_ = EachMessage(b, batch.add)
	})
}
