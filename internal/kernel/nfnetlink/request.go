//go:build linux

package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInterrupted is the error of a dump of something that changed meanwhile.
var ErrInterrupted = errors.New("it changed while it was being read")

// answerTimeout bounds the wait for an answer. The kernel answers within the request, and
// reports an answer that it could not send (ENOBUFS), so that nothing should ever take that long.
const answerTimeout = 30 * time.Second

// Do sends a request, which begins with a header, and calls each with every answer before
// the acknowledgement, after its netlink header. Each may be nil. The error is the kernel's
// if it refused the request, or that of each.
func (c *Conn) Do(msg []byte, each func(payload []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.ask(msg, unix.NLM_F_ACK, each)
	for err == nil && !a.done {
		err = c.receive(a.add)
	}
	if err != nil {
		return err
	}
	return a.err
}

// Dump does the same for a request of all that there is. It ends early with an error of each,
// and when ctx is done. If what is read changes meanwhile, the error is ErrInterrupted; each
// is still called for all that the kernel sends.
func (c *Conn) Dump(ctx context.Context, msg []byte, each func(payload []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := c.ask(msg, unix.NLM_F_DUMP, each)
	if err != nil {
		return err
	}
	c.dump = a
	add := a.add
	for !a.done && a.err == nil {
		if a.err = ctx.Err(); a.err != nil {
			break
		}
		if err := c.receive(add); err != nil {
			return err
		}
	}
	if a.err == nil && a.interrupted || errors.Is(a.err, unix.EINTR) {
		return ErrInterrupted
	}
	return a.err
}

// ask sends a request. Before, it reads what is left of a dump that ended early.
func (c *Conn) ask(msg []byte, more uint16, each func([]byte) error) (*answer, error) {
	if err := c.skipDump(); err != nil {
		return nil, err
	}
	c.seq++
	EndMessage(msg, 0)
	addFlags(msg, 0, more)
	setSeq(msg, 0, c.seq)
	return &answer{seq: c.seq, each: each}, c.send(msg)
}

func (c *Conn) skipDump() error {
	dump := c.dump
	c.dump = nil
	for dump != nil && !dump.done {
		dump.each = nil
		if err := c.receive(dump.add); err != nil {
			return fmt.Errorf("skipping the rest of an earlier answer: %w", err)
		}
	}
	return nil
}

// answer is the kernel's to one request.
type answer struct {
	seq  uint32
	each func([]byte) error
	done bool // it is complete
	// interrupted says that the kernel marked it as inconsistent.
	interrupted bool
	err         error // the kernel's, or that of each
}

// add adds a message, unless it is a late answer to something older.
func (a *answer) add(h Header, payload []byte) error {
	if h.Seq != a.seq || a.done {
		return nil
	}
	a.interrupted = a.interrupted || h.Flags&unix.NLM_F_DUMP_INTR != 0
	a.done = h.Type == unix.NLMSG_ERROR || h.Type == unix.NLMSG_DONE
	switch {
	case a.err != nil: // the rest is of no interest
	case h.Type == unix.NLMSG_ERROR:
		a.err = AckError(h, payload)
	case h.Type == unix.NLMSG_DONE:
		a.err = doneError(h, payload)
	case len(payload) < GenHeaderLen:
		a.err = ErrMalformed
	case a.each != nil:
		a.err = a.each(payload)
	}
	return nil
}

// Batch sends messages at once, and calls f for those that the kernel acknowledges or refuses,
// in their order, with their index and nil or the error. The kernel reports every refusal, and
// success where it was requested (RequestAck). The last such message ends the batch, or f by
// returning true. After an error of Batch it is unknown what took effect.
func (c *Conn) Batch(msgs []byte, f func(i int, err error) (end bool)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.skipDump(); err != nil {
		return err
	}
	a := acks{first: c.seq + 1, f: f}
	for at := 0; at < len(msgs); at += Align(int(binary.NativeEndian.Uint32(msgs[at:]))) {
		if flags(msgs, at)&unix.NLM_F_ACK != 0 {
			a.last = a.count
		}
		a.count++
		c.seq++
		setSeq(msgs, at, c.seq)
	}
	if err := c.send(msgs); err != nil {
		return fmt.Errorf("sending %d bytes: %w", len(msgs), err)
	}
	for !a.done {
		if err := c.receive(a.add); err != nil {
			return fmt.Errorf("waiting for an answer: %w", err)
		}
	}
	return nil
}

// acks are the kernel's answers to a batch.
type acks struct {
	first       uint32 // the number of the first message
	count, last uint32 // messages, and the index of that whose answer is the last
	f           func(i int, err error) (end bool)
	done        bool
}

// add adds a message, unless it is a late answer to something older.
func (a *acks) add(h Header, payload []byte) error {
	if i := h.Seq - a.first; h.Type == unix.NLMSG_ERROR && i < a.count && !a.done {
		a.done = a.f(int(i), AckError(h, payload)) || i == a.last
	}
	return nil
}

// receive reads one datagram of an answer, and calls f for each message in it.
func (c *Conn) receive(f func(Header, []byte) error) error {
	// Setting it takes longer than reading, so it is not set for each datagram.
	if now := time.Now(); now.Sub(c.deadlineSet) > answerTimeout/10 {
		if err := c.nl.SetReadDeadline(now.Add(answerTimeout)); err != nil {
			return err
		}
		c.deadlineSet = now
	}
	return c.Receive(f)
}
