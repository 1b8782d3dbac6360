//go:build linux

// Package conntracktest writes entries into connection tracking tables, as if
// there had been traffic: very many of them in a short time, for tests and
// benchmarks.
package conntracktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// Entry is an entry to write.
type Entry struct {
	From     netip.AddrPort // the client
	To       netip.AddrPort // where the client sends to
	By       netip.AddrPort // who answers
	Protocol model.Protocol
	Zone     uint16
	TCPState uint8 // of a TCP connection; 0 for that of a new one
}

const (
	// lifetime is in seconds, and longer than any test.
	lifetime = 24 * 3600
	// atOnce is how many entries share a datagram.
	atOnce = 512
)

// Fill writes entries into the table of a network namespace, given as an open
// file descriptor.
func Fill(netns int, entries iter.Seq[Entry]) error {
	conn, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := writer{conn: conn}
	for e := range entries {
		w.add(&e)
		if w.count == atOnce {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

// writer batches entries.
type writer struct {
	conn  *nfnetlink.Conn
	msgs  []byte
	last  int // where the last message begins
	count int
}

func (w *writer) add(e *Entry) {
	w.last = len(w.msgs)
	w.count++
	w.msgs = ctnetlink.AppendHeader(w.msgs, ctnetlink.New, unix.NLM_F_CREATE|unix.NLM_F_EXCL, e.To.Addr())
	w.msgs = ctnetlink.AppendTuple(w.msgs, ctnetlink.TupleOrig, ctnetlink.Flow{Protocol: e.Protocol, From: e.From, To: e.To})
	w.msgs = ctnetlink.AppendTuple(w.msgs, ctnetlink.TupleReply, ctnetlink.Flow{Protocol: e.Protocol, From: e.By, To: e.From})
	if e.Protocol != model.TCP || e.TCPState > ctnetlink.TCPSynSent { // the kernel refuses to have it cleared
		status := binary.BigEndian.AppendUint32(nil, ctnetlink.Confirmed|ctnetlink.SeenReply)
		w.msgs = nfnetlink.AppendAttr(w.msgs, ctnetlink.Status, status)
	}
	w.msgs = nfnetlink.AppendAttr(w.msgs, ctnetlink.Timeout, binary.BigEndian.AppendUint32(nil, lifetime))
	if e.Zone != 0 {
		w.msgs = nfnetlink.AppendAttr(w.msgs, ctnetlink.Zone, binary.BigEndian.AppendUint16(nil, e.Zone))
	}
	if e.TCPState != 0 {
		w.msgs = ctnetlink.AppendTCPState(w.msgs, e.TCPState)
	}
	nfnetlink.EndMessage(w.msgs, w.last)
}

// flush writes the batch.
func (w *writer) flush() error {
	if w.count == 0 {
		return nil
	}
	nfnetlink.RequestAck(w.msgs, w.last)
	var refused error
	err := w.conn.Batch(w.msgs, func(_ int, err error) bool {
		refused = errors.Join(refused, err)
		return false
	})
	w.msgs, w.count = w.msgs[:0], 0
	if err := errors.Join(err, refused); err != nil {
		return fmt.Errorf("writing entries into the connection tracking table: %w", err)
	}
	return nil
}
