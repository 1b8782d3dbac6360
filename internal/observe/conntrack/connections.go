//go:build linux

package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/cputime"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// Connection is an entry whose destination was translated.
type Connection struct {
	// ID is the kernel's number for the entry. Entries that follow each other in the same
	// memory may share it, so that it is unique together with the addresses only.
	ID       uint32
	Protocol model.Protocol
	// Client is where the connection comes from, Frontend where the client sends to, and
	// Endpoint where its packets go.
	Client, Frontend, Endpoint netip.AddrPort
	// SeenAs is where the endpoint sees it come from: the client, or who masquerades it.
	SeenAs netip.AddrPort
	// Replied says that packets were seen in both directions, and Over that a TCP
	// connection has ended.
	Replied, Over bool
	// Lasts is for how much longer the entry stays if there are no packets, in whole seconds.
	Lasts time.Duration
}

func (f *flow) connection() Connection {
	return Connection{
		ID: binary.BigEndian.Uint32(f.ID), Protocol: f.Protocol,
		Client: f.From, Frontend: f.To, Endpoint: f.By, SeenAs: f.ReplyTo,
		Replied: f.Replied, Over: f.Protocol == model.TCP && f.Over(), Lasts: f.Lasts,
	}
}

// Selection is of which connections to read. The kernel selects, which costs a small part of
// sending them; a kernel that is too old for that sends more than was asked for.
type Selection struct {
	Unreplied bool       // only those without a reply (Linux 5.19)
	Replied   bool       // only those with one
	Offloaded bool       // only those that a flow table forwards
	Endpoint  netip.Addr // only those to an address, if it is valid (Linux 5.8)
}

func (s Selection) filter() (attrs []byte) {
	status, mask := uint32(0), uint32(0)
	if s.Unreplied || s.Replied {
		mask = ctnetlink.SeenReply
	}
	if s.Replied {
		status = ctnetlink.SeenReply
	}
	if s.Offloaded {
		status, mask = status|ctnetlink.Offloaded, mask|ctnetlink.Offloaded
	}
	if mask != 0 {
		attrs = nfnetlink.AppendAttr(attrs, ctnetlink.Status, binary.BigEndian.AppendUint32(nil, status))
		attrs = nfnetlink.AppendAttr(attrs, ctnetlink.StatusMask, binary.BigEndian.AppendUint32(nil, mask))
	}
	if s.Endpoint.Is4() { // for IPv6 the kernel, up to 6.18 at least, leaves out those that match
		ip := nfnetlink.AppendAttr(nil, ctnetlink.IPv4Src, s.Endpoint.AsSlice())
		tuple := nfnetlink.AppendAttr(nil, nfnetlink.Nested|ctnetlink.TupleIP, ip)
		flags := nfnetlink.AppendAttr(nil, ctnetlink.FilterReplyFlags, binary.NativeEndian.AppendUint32(nil, ctnetlink.FilterSource))
		attrs = nfnetlink.AppendAttr(attrs, nfnetlink.Nested|ctnetlink.TupleReply, tuple)
		attrs = nfnetlink.AppendAttr(attrs, nfnetlink.Nested|ctnetlink.Filter, flags)
	}
	return attrs
}

// includes reports whether an entry was asked for.
func (s Selection) includes(f *flow) bool {
	return !(s.Unreplied && f.Replied) && !(s.Replied && !f.Replied) && !(s.Offloaded && !f.Offloaded) &&
		(!s.Endpoint.IsValid() || f.By.Addr() == s.Endpoint)
}

// family is that of the request: the kernel selects by address within one only.
func (s Selection) family() uint8 {
	switch {
	case !s.Endpoint.IsValid():
		return unix.NFPROTO_UNSPEC
	case s.Endpoint.Is6():
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// Connections calls yield for each connection of a network namespace, given as in Options. It
// returns the CPU time that this took.
func Connections(ctx context.Context, netns int, s Selection, yield func(Connection)) (cost time.Duration, err error) {
	conn, err := nfnetlink.Dial(netns)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	reader := sweeper{ctx: ctx, conn: conn, filter: func(kind) []byte { return s.filter() }, stale: func(f *flow) bool {
		if f.Translated() && s.includes(f) {
			yield(f.connection())
		}
		return false
	}}
	return cputime.Of(func() error { return reader.dump(s.family(), anyKind) })
}

// ErrMissed is the error of WatchUnreplied if entries ended faster than they were read.
var ErrMissed = errors.New("the kernel dropped notifications of connection tracking")

// unrepliedBuffer holds some thousand notifications.
const unrepliedBuffer = 1 << 20

// WatchUnreplied calls yield for each entry that ends without a packet in the other direction,
// until ctx is done or an error occurs. The kernel deletes an entry at once if the answer to
// its first packet is a reset, so that this is how a refused connection can be seen. It drops
// the notifications of all other entries before they are read. Entries that a program deletes, as
// this one does, prove nothing. It calls begun, unless that is nil, once none is missed.
func WatchUnreplied(ctx context.Context, netns int, begun func(), yield func(Connection)) error {
	conn, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.ForceBuffers(1<<12, unrepliedBuffer); err != nil {
		return err
	}
	if err := conn.RequireClear(ctnetlink.Status, ctnetlink.SeenReply); err != nil {
		return err
	}
	if err := conn.Join(ctnetlink.GroupDestroy); err != nil {
		return err
	}
	if begun != nil {
		begun()
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var f flow
	for ctx.Err() == nil {
		err := conn.Receive(func(h nfnetlink.Header, payload []byte) error {
			byKernel := h.Port == 0
			if h.Type == ctnetlink.Delete && byKernel && f.Decode(payload) && f.Translated() {
				yield(f.connection())
			}
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			return ErrMissed
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

// Find returns the connection of a client to an address in a network namespace, given as in
// Options, and whether there is one. It may be one whose destination was not translated.
func Find(netns int, p model.Protocol, client, to netip.AddrPort) (c Connection, found bool, err error) {
	conn, err := ctnetlink.Dial(netns)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	entry, err := conn.Find(ctnetlink.Flow{Protocol: p, From: client, To: to})
	switch {
	case errors.Is(err, unix.ENOENT):
		return c, false, nil
	case err != nil:
		return c, false, fmt.Errorf("reading a connection tracking entry: %w", err)
	}
	return (&flow{entry}).connection(), true, nil
}
