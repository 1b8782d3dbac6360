package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Sentinels for what can go wrong with a dump or a batch.
var (
	// ErrInterrupted says that the ruleset changed while it was being read.
	ErrInterrupted = errors.New("the ruleset changed while it was being read")
)

// Refused is the kernel's refusal of a batch. Nothing of the batch was done.
type Refused struct {
	Messages []Refusal
	Err      error // set when the batch as a whole was refused
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

// Unwrap makes the kernel's error codes visible to errors.Is.
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

// Conn is a netlink socket to nftables. It serves one request at a time.
type Conn struct {
	mu   sync.Mutex
	nl   *netlink.Conn
	raw  syscall.RawConn
	seq  uint32
	port uint32
	buf  []byte
	// commits counts the transactions that took effect.
	commits atomic.Uint64
}

const (
	sendBuffer    = 16 << 20
	receiveBuffer = 4 << 20
	readSize      = 1 << 16
	// answerTimeout bounds the wait for an answer. The kernel answers within
	// the request; only a lost answer (ENOBUFS) could make us wait.
	answerTimeout = 30 * time.Second
)

// Dial opens a socket in a network namespace, given as an open file
// descriptor, or in the caller's with 0.
func Dial(netns int) (*Conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for nftables: %w", err)
	}
	c := &Conn{nl: nl, port: nl.PID(), buf: make([]byte, readSize)}
	if c.raw, err = nl.SyscallConn(); err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	// The sizes are wishes: without CAP_NET_ADMIN in the initial user namespace
	// the kernel caps them, and batches are bounded so that they fit anyway.
	if err := forceBuffers(c.raw); err != nil {
		return nil, errors.Join(fmt.Errorf("sizing netlink buffers: %w", err), nl.Close())
	}
	for _, o := range []netlink.ConnOption{netlink.ExtendedAcknowledge, netlink.CapAcknowledge} {
		if err := nl.SetOption(o, true); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up netlink acknowledgements: %w", err), nl.Close())
		}
	}
	return c, nil
}

func forceBuffers(raw syscall.RawConn) error {
	var err error
	set := func(fd, force, plain, size int) {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size))
		}
	}
	cerr := raw.Control(func(fd uintptr) {
		set(int(fd), unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
		set(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	})
	return errors.Join(err, cerr)
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Port is the number by which notifications name this socket as their cause.
func (c *Conn) Port() uint32 { return c.port }

// Commits counts the transactions of this socket that took effect.
func (c *Conn) Commits() uint64 { return c.commits.Load() }

// Commit sends the batch as one transaction. The error is a *Refused when the
// kernel did not want it; with any other error it is not known whether the
// transaction took effect. The batch can not be used again.
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
	if err := c.send(msgs); err != nil {
		return fmt.Errorf("sending a transaction of %d bytes: %w", len(msgs), err)
	}
	if err := c.acknowledged(b, first); err != nil {
		return err
	}
	c.commits.Add(1)
	return nil
}

// acknowledged reads answers until that to the last message, which comes in
// any case, or until one to the batch as a whole.
func (c *Conn) acknowledged(b *Batch, first uint32) error {
	refused := &Refused{}
	last := first + uint32(len(b.owners))
	for done := false; !done; {
		err := c.receive(func(h header, payload []byte) error {
			if h.typ != unix.NLMSG_ERROR || h.seq < first || h.seq > last+1 {
				return nil // a late answer to something older
			}
			err := parseError(h, payload)
			switch {
			case err != nil && (h.seq == first || h.seq == last+1):
				refused.Err, done = err, true
			case err != nil:
				refused.Messages = append(refused.Messages, Refusal{b.owners[h.seq-first-1], err})
			}
			done = done || h.seq == last
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

func (c *Conn) send(b []byte) error {
	var err error
	werr := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(werr, err)
}

type header struct {
	typ, flags uint16
	seq, port  uint32
}

// receive reads one datagram and calls f for each message in it.
func (c *Conn) receive(f func(header, []byte) error) error {
	if err := c.nl.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return receive(c.raw, c.buf, f)
}

func receive(raw syscall.RawConn, buf []byte, f func(header, []byte) error) error {
	var n int
	var err error
	rerr := raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), buf, 0)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err := errors.Join(rerr, err); err != nil {
		return err
	}
	return eachMessage(buf[:n], f)
}

// eachMessage calls f for each netlink message. A malformed one ends the walk.
func eachMessage(b []byte, f func(header, []byte) error) error {
	for len(b) >= netlinkHeader {
		length := int(binary.NativeEndian.Uint32(b))
		if length < netlinkHeader || length > len(b) {
			return errAttr
		}
		h := header{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			port:  binary.NativeEndian.Uint32(b[12:]),
		}
		if err := f(h, b[netlinkHeader:length]); err != nil {
			return err
		}
		b = b[min(align(length), len(b)):]
	}
	return nil
}

// parseError reads an acknowledgement: nil, or the kernel's error with its
// explanation where it gives one.
func parseError(h header, payload []byte) error {
	if len(payload) < 4+netlinkHeader {
		return errAttr
	}
	code := int32(binary.NativeEndian.Uint32(payload))
	if code == 0 {
		return nil
	}
	err := error(unix.Errno(-code))
	if h.flags&unix.NLM_F_ACK_TLVS == 0 {
		return err
	}
	for typ, v := range each(payload[4+netlinkHeader:]) {
		if typ == unix.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w (%s)", err, strings.TrimSpace(toText(v)))
		}
	}
	return err
}
