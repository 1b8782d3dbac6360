package nft

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// ErrInterrupted is the error of a dump during which the ruleset changed.
var ErrInterrupted = errors.New("the ruleset changed while it was being read")

// Refused is the error of a batch that the kernel refused. It had no effect.
type Refused struct {
	Messages []Refusal
	Err      error // set if the batch as a whole was refused
}

// Refusal is the refusal of one message.
type Refusal struct {
	Owner Owner
	Err   error
}

func (r *Refused) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("the kernel refused the transaction: %v", r.Err)
	}
	m := r.Messages[0]
	if n := len(r.Messages); n > 1 {
		return fmt.Sprintf("the kernel refused %d messages of the transaction, the first: %v", n, m.Err)
	}
	return fmt.Sprintf("the kernel refused a message of the transaction: %v", m.Err)
}

// Unwrap returns the kernel's errors, for errors.Is.
func (r *Refused) Unwrap() []error {
	if r.Err != nil {
		return []error{r.Err}
	}
	errs := make([]error, len(r.Messages))
	for i, m := range r.Messages {
		errs[i] = m.Err
	}
	return errs
}

// Conn is a netlink socket to nftables. It handles one request at a time.
type Conn struct {
	mu     sync.Mutex
	socket *nfnetlink.Socket
	seq    uint32
	// deadlineSet is when the read deadline was set.
	deadlineSet time.Time
	// commits counts the transactions that took effect.
	commits atomic.Uint64
}

const (
	// SendBuffer is the usual size of the send buffer.
	SendBuffer    = 16 << 20
	receiveBuffer = 4 << 20
	// answerTimeout is the timeout of an answer. The kernel answers within the
	// request, unless an answer is lost (ENOBUFS).
	answerTimeout = 30 * time.Second
)

// Dial opens a socket in a network namespace, given as an open file descriptor; 0 is
// the caller's own. It requests a send buffer of that many bytes.
func Dial(netns, sendBuffer int) (*Conn, error) {
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	// The kernel may grant less: see MaxBatch.
	if err := socket.ForceBuffers(sendBuffer, receiveBuffer); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &Conn{socket: socket}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// Port is the netlink port, which notifications have of what this socket caused.
func (c *Conn) Port() uint32 { return c.socket.Port() }

// MaxBatch returns the maximum size of a transaction in bytes. Without CAP_NET_ADMIN in
// the initial user namespace the kernel grants less than was requested.
func (c *Conn) MaxBatch() (int, error) { return c.socket.SendBuffer() }

// Commits returns how many transactions of this socket took effect.
func (c *Conn) Commits() uint64 { return c.commits.Load() }

// Commit sends the batch as one transaction. The error is a *Refused if the kernel
// refused it; after any other error it is unknown whether it took effect. The batch
// cannot be used again.
func (c *Conn) Commit(ctx context.Context, b *Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Empty() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.seq + 1
	msgs := b.finish(first)
	c.seq += uint32(len(b.owners)) + 2
	if err := c.socket.Send(msgs); err != nil {
		return fmt.Errorf("sending a transaction of %d bytes: %w", len(msgs), err)
	}
	if err := c.acknowledged(b, first); err != nil {
		return err
	}
	c.commits.Add(1)
	return nil
}

// acknowledged reads answers until that to the last message, which is always sent, or
// until one to the batch as a whole.
func (c *Conn) acknowledged(b *Batch, first uint32) error {
	refused := &Refused{}
	last := first + uint32(len(b.owners))
	for done := false; !done; {
		err := c.receive(func(h nfnetlink.Header, payload []byte) error {
			if h.Type != unix.NLMSG_ERROR || h.Seq < first || h.Seq > last+1 {
				return nil // a late answer to something older
			}
			err := nfnetlink.AckError(h, payload)
			switch {
			case err != nil && (h.Seq == first || h.Seq == last+1):
				refused.Err, done = err, true
			case err != nil:
				refused.Messages = append(refused.Messages, Refusal{b.owners[h.Seq-first-1], err})
			}
			done = done || h.Seq == last
			return nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the end of a transaction: %w", err)
		}
	}
	if refused.Err != nil || len(refused.Messages) > 0 {
		return refused
	}
	return nil
}

// receive reads one datagram and calls f for each message in it.
func (c *Conn) receive(f func(nfnetlink.Header, []byte) error) error {
	// Setting it takes longer than reading, so it is not set for each datagram.
	if now := time.Now(); now.Sub(c.deadlineSet) > answerTimeout/10 {
		if err := c.socket.SetReadDeadline(now.Add(answerTimeout)); err != nil {
			return err
		}
		c.deadlineSet = now
	}
	return c.socket.Receive(f)
}
