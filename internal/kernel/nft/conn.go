//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"sluice/internal/kernel/nfnetlink"
)

// ErrInterrupted is the error of a dump during which the ruleset changed.
var ErrInterrupted = nfnetlink.ErrInterrupted

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
	nl *nfnetlink.Conn
	// commits counts the transactions that took effect.
	commits atomic.Uint64
}

const (
	// SendBuffer is the usual size of the send buffer.
	SendBuffer    = 16 << 20
	receiveBuffer = 4 << 20
)

// Dial opens a socket in a network namespace, given as an open file descriptor; 0 is
// the caller's own. It requests a send buffer of that many bytes.
func Dial(netns, sendBuffer int) (*Conn, error) {
	nl, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	// The kernel may grant less: see MaxBatch.
	if err := nl.ForceBuffers(sendBuffer, receiveBuffer); err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	return &Conn{nl: nl}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Port is the netlink port, which notifications have of what this socket caused.
func (c *Conn) Port() uint32 { return c.nl.Port() }

// MaxBatch returns the maximum size of a transaction in bytes. Without CAP_NET_ADMIN in
// the initial user namespace the kernel grants less than was requested.
func (c *Conn) MaxBatch() (int, error) { return c.nl.SendBuffer() }

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
	refused := &Refused{}
	err := c.nl.Batch(b.finish(), func(i int, err error) (end bool) {
		switch {
		case err == nil:
		case i == 0 || i > len(b.owners):
			refused.Err = err // the batch as a whole is answered by this alone
		default:
			refused.Messages = append(refused.Messages, Refusal{b.owners[i-1], err})
		}
		return refused.Err != nil
	})
	if err != nil {
		return fmt.Errorf("committing a transaction: %w", err)
	}
	if refused.Err != nil || len(refused.Messages) > 0 {
		return refused
	}
	c.commits.Add(1)
	return nil
}
