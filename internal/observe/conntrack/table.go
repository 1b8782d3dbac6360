//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/base/cputime"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/netns"
	"sluice/internal/kernel/nfnetlink"
)

var families = [...]uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}

// table is the connection tracking table of a network namespace.
type table struct {
	netns  int
	forget func(context.Context, []dataplane.Lost) error // as in Options
	local  func(netip.Addr) (bool, error)                // as in Options
}

// sweep reads the entries of some kinds and deletes stale ones. Its sockets
// are closed with the sweep, so that nothing is left in them if it ends early.
func (t table) sweep(ctx context.Context, which kinds, stale func(*flow) bool) (result sweepResult, err error) {
	reader, err := nfnetlink.Dial(t.netns)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	writer, err := nfnetlink.Dial(t.netns)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()

	challenger := challenger{netns: t.netns}
	defer challenger.close()
	s := sweeper{ctx: ctx, conn: reader, filter: kind.filter, stale: stale, forget: t.forget,
		deletions: deletions{conn: writer, challenger: &challenger}}
	cost, err := cputime.Of(func() error { return errors.Join(s.sweepAll(which), s.deletions.refused) })
	return sweepResult{s.seen, s.deletions.deleted, s.deletedIPv6, cost, challenger.err}, err
}

// sweeper examines the entries that the kernel sends.
type sweeper struct {
	ctx    context.Context
	conn   *nfnetlink.Conn
	filter func(kind) []byte
	stale  func(*flow) bool
	forget func(context.Context, []dataplane.Lost) error
	// lost are the stale TCP connections of a family that are to be forgotten, all at
	// once: the kernel may delete entries that were not read yet.
	lost      []flow
	deletions deletions
	seen      int
	flow      flow // the entry being looked at

	deletedIPv6 int // of those deleted
}

func (s *sweeper) sweepAll(which kinds) error {
	for _, k := range which {
		for _, family := range families {
			if err := s.sweep(family, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep reads the entries of a family and kind and deletes stale ones, also
// if reading ends with an error.
func (s *sweeper) sweep(family uint8, k kind) error {
	before := s.deletions.deleted
	err := s.dump(family, k)
	if err != nil {
		err = fmt.Errorf("reading the connection tracking table: %w", err)
	} else {
		err = s.deleteLost()
	}
	s.lost = nil
	err = errors.Join(err, s.deletions.flush())
	if family == unix.NFPROTO_IPV6 {
		s.deletedIPv6 += s.deletions.deleted - before
	}
	return err
}

// deleteLost has connections forgotten, and deletes what is left of their entries.
func (s *sweeper) deleteLost() error {
	if len(s.lost) == 0 {
		return nil
	}
	known := map[dataplane.Lost]struct{}{}
	for i := range s.lost {
		known[dataplane.Lost{Frontend: s.lost[i].key(), Endpoint: s.lost[i].By}] = struct{}{}
	}
	if err := s.forget(s.ctx, slices.Collect(maps.Keys(known))); err != nil {
		return fmt.Errorf("ending connections to endpoints that left: %w", err)
	}
	for i := range s.lost {
		if err := s.deletions.add(&s.lost[i]); err != nil {
			return err
		}
	}
	return nil
}

// dump examines all entries of a family and kind.
func (s *sweeper) dump(family uint8, k kind) error {
	err := s.request(family, k, s.filter(k))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = s.request(family, k, nil) // the kernel does not support the filter
	}
	return err
}

func (s *sweeper) request(family uint8, k kind, filter []byte) error {
	msg := append(nfnetlink.AppendNetfilterHeader(nil, ctnetlink.Get, 0, family, 0), filter...)
	return s.conn.Dump(s.ctx, msg, func(payload []byte) error { return s.look(k, payload) })
}

// look decides about one entry.
func (s *sweeper) look(k kind, payload []byte) error {
	s.seen++
	if !s.flow.Decode(payload) || !k.includes(&s.flow) || !s.stale(&s.flow) {
		return nil
	}
	if k == allTCP && s.forget != nil && !s.flow.unanswered() {
		s.lost = append(s.lost, flow{s.flow.Clone()})
		return nil
	}
	return s.deletions.add(&s.flow)
}

// tcpLooseFile holds whether connections are tracked that are already
// established when they are first seen.
const tcpLooseFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// tcpLoose reports whether the kernel tracks TCP connections that are already
// established when they are first seen.
func (t table) tcpLoose() (yes bool, err error) {
	err = netns.Do(t.netns, func() error {
		text, err := os.ReadFile(tcpLooseFile)
		yes = strings.TrimSpace(string(text)) != "0"
		return err
	})
	return yes, err
}

func (t table) isLocal(addr netip.Addr) (yes bool, err error) {
	err = netns.Do(t.netns, func() error {
		yes, err = t.local(addr)
		return err
	})
	return yes, err
}

// deletionsPerSend is how many deletions share a datagram. Their answers fit
// into the smallest receive buffer that the kernel gives by default.
const deletionsPerSend = 64

// deletions batches entries to be deleted.
type deletions struct {
	conn        *nfnetlink.Conn
	challenger  *challenger
	msgs        []byte
	count       int                          // messages in msgs
	connections [deletionsPerSend]connection // by message; the zero one if it is not to be reset
	deleted     int
	refused     error // the first refusal
}

// add adds an entry to the batch, and flushes a full one.
func (d *deletions) add(f *flow) error {
	at := len(d.msgs)
	d.msgs = nfnetlink.AppendNetfilterHeader(d.msgs, ctnetlink.Delete, unix.NLM_F_ACK, f.Family, 0)
	d.msgs = nfnetlink.AppendAttr(d.msgs, nfnetlink.Nested|ctnetlink.TupleOrig, f.Tuple)
	if f.Zone != nil {
		d.msgs = nfnetlink.AppendAttr(d.msgs, ctnetlink.Zone, f.Zone)
	}
	// The ID protects a newer entry with the same tuple.
	d.msgs = nfnetlink.AppendAttr(d.msgs, ctnetlink.ID, f.ID)
	nfnetlink.EndMessage(d.msgs, at)
	d.connections[d.count] = connectionOf(f)
	if d.count++; d.count < deletionsPerSend {
		return nil
	}
	return d.flush()
}

// flush deletes the entries of the batch. It is no error if one is gone
// already.
func (d *deletions) flush() error {
	if d.count == 0 {
		return nil
	}
	err := d.conn.Batch(d.msgs, d.answer)
	d.msgs, d.count = d.msgs[:0], 0
	if err != nil {
		return fmt.Errorf("deleting entries of the connection tracking table: %w", err)
	}
	return nil
}

// answer handles the answer to one deletion. That to the last ends the batch.
func (d *deletions) answer(i int, err error) (end bool) {
	// An entry that is gone already may have been deleted by what was called to forget
	// the connection. If the connection has ended instead, its ends ignore what they get.
	if err == nil || errors.Is(err, unix.ENOENT) {
		d.challenger.provoke(d.connections[i])
	}
	switch {
	case err == nil:
		d.deleted++
	case errors.Is(err, unix.ENOENT):
	case d.refused == nil:
		d.refused = fmt.Errorf("deleting an entry of the connection tracking table: %w", err)
	}
	return false
}
