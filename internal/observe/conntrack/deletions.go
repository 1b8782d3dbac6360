package conntrack

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
)

// deletionsPerSend is how many deletions share a datagram. Their answers fit
// into the smallest receive buffer that the kernel gives by default.
const deletionsPerSend = 64

// deletions batches entries to be deleted.
type deletions struct {
	socket      *nfnetlink.Socket
	challenger  *challenger
	msgs        []byte
	count       int                          // messages in msgs
	connections [deletionsPerSend]connection // by message; the zero one if it is not to be reset
	seq         uint32                       // of the last message
	first       uint32                       // sequence number of the first message being answered
	open        int                          // outstanding answers
	deleted     int
	refused     error // the first refusal
}

// add adds an entry to the batch, and flushes a full one.
func (d *deletions) add(f *flow) error {
	at := len(d.msgs)
	d.seq++
	d.count++
	d.msgs = nfnetlink.AppendHeader(d.msgs, deleteEntry, unix.NLM_F_REQUEST|unix.NLM_F_ACK, f.family, 0)
	d.msgs = nfnetlink.AppendAttr(d.msgs, nfnetlink.Nested|cta.TupleOrig, f.tuple)
	if f.zone != nil {
		d.msgs = nfnetlink.AppendAttr(d.msgs, cta.Zone, f.zone)
	}
	// The ID protects a newer entry with the same tuple.
	d.msgs = nfnetlink.AppendAttr(d.msgs, cta.ID, f.id)
	nfnetlink.EndMessage(d.msgs, at)
	nfnetlink.SetSeq(d.msgs, at, d.seq)
	d.connections[d.count-1] = connectionOf(f)
	if d.count < deletionsPerSend {
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
	d.open, d.first = d.count, d.seq-uint32(d.count)+1
	err := d.socket.Send(d.msgs)
	d.msgs, d.count = d.msgs[:0], 0
	if err != nil {
		return fmt.Errorf("deleting entries of the connection tracking table: %w", err)
	}
	for d.open > 0 && err == nil {
		if err = d.socket.SetReadDeadline(time.Now().Add(answerTimeout)); err == nil {
			err = d.socket.Receive(d.answer)
		}
	}
	if err != nil {
		return fmt.Errorf("waiting for the deletion of connection tracking entries: %w", err)
	}
	return nil
}

// answer handles the answer to one deletion.
func (d *deletions) answer(h nfnetlink.Header, payload []byte) error {
	nth := h.Seq - d.first
	if h.Type != unix.NLMSG_ERROR || nth > d.seq-d.first {
		return nil
	}
	d.open--
	err := nfnetlink.AckError(h, payload)
	// An entry that is gone already may have been deleted by what was called to forget
	// the connection. If the connection has ended instead, its ends ignore what they get.
	if err == nil || errors.Is(err, unix.ENOENT) {
		d.challenger.provoke(d.connections[nth])
	}
	d.note(err)
	return nil
}

func (d *deletions) note(err error) {
	switch {
	case err == nil:
		d.deleted++
	case errors.Is(err, unix.ENOENT):
	case d.refused == nil:
		d.refused = fmt.Errorf("deleting an entry of the connection tracking table: %w", err)
	}
}
