package conntrack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/nfnetlink"
)

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
