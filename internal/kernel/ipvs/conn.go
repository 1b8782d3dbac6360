package ipvs

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

// ErrAbsent is the error of a kernel without IPVS, or where its module is not loaded.
var ErrAbsent = errors.New("the kernel has no IPVS, or its module ip_vs is not loaded")

// Refused are the commands of a Batch that the kernel refused. All others took effect.
type Refused []Refusal

// Refusal is a refused command.
type Refusal struct {
	Key Key // the virtual service that it is about
	Err error
}

func (r Refused) Error() string {
	if len(r) > 1 {
		return fmt.Sprintf("the kernel refused %d commands to IPVS, the first one about %s: %v", len(r), r[0].Key, r[0].Err)
	}
	return fmt.Sprintf("the kernel refused a command to IPVS about %s: %v", r[0].Key, r[0].Err)
}

// Unwrap returns the kernel's errors, for errors.Is.
func (r Refused) Unwrap() []error {
	errs := make([]error, len(r))
	for i := range r {
		errs[i] = r[i].Err
	}
	return errs
}

// Conn is a netlink socket to IPVS. It handles one request at a time.
type Conn struct {
	mu     sync.Mutex
	socket *nfnetlink.Socket
	family uint16
	seq    uint32
	// commands counts those that were sent to change something.
	commands atomic.Uint64
}

const (
	bufferSize = 4 << 20
	// answerTimeout is the timeout of an answer. The kernel answers within the request.
	answerTimeout = 30 * time.Second
)

// Dial opens a socket in a network namespace, given as an open file descriptor; 0 is
// the caller's own. The error is ErrAbsent if there is no IPVS.
func Dial(netns int) (_ *Conn, err error) {
	socket, err := nfnetlink.DialGeneric(netns)
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket}
	defer func() {
		if err != nil {
			err = errors.Join(err, socket.Close())
		}
	}()
	if err := socket.ForceBuffers(bufferSize, bufferSize); err != nil {
		return nil, err
	}
	if err := c.findFamily(); err != nil {
		return nil, err
	}
	return c, nil
}

// findFamily asks for the number of the generic netlink family.
func (c *Conn) findFamily() error {
	b := appendRequest(nil, unix.CTRL_CMD_GETFAMILY, nfnetlink.AppendAttr(nil, unix.CTRL_ATTR_FAMILY_NAME, []byte(familyName+"\x00")))
	c.family = unix.GENL_ID_CTRL
	var found uint16
	err := c.request(b, unix.NLM_F_ACK, func(payload []byte) {
		for typ, v := range nfnetlink.Attrs(payload) {
			if typ == unix.CTRL_ATTR_FAMILY_ID {
				found = value(v).u16()
			}
		}
	})
	if c.family = found; errors.Is(err, unix.ENOENT) {
		return ErrAbsent
	}
	if err != nil {
		return fmt.Errorf("finding IPVS: %w", err)
	}
	return nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// Commands returns how many commands that change something were sent.
func (c *Conn) Commands() uint64 { return c.commands.Load() }

// Commit sends the commands of a batch, in their order. The error is a Refused if the
// kernel refused some of them. The batch cannot be used again.
func (c *Conn) Commit(ctx context.Context, b *Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused Refused
	for from := 0; from < b.Len(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := b.chunk(from)
		first := c.seq + 1
		for i := from; i < to; i++ {
			flags := uint16(0) // answers to errors only
			if i == to-1 {
				flags = unix.NLM_F_ACK
			}
			c.seq++
			address(b.buf[b.starts[i]:], c.family, flags, c.seq)
		}
		if err := c.socket.Send(b.buf[b.starts[from]:b.end(to)]); err != nil {
			return fmt.Errorf("sending %d commands to IPVS: %w", to-from, err)
		}
		c.commands.Add(uint64(to - from))
		err := c.receive(first, func(h nfnetlink.Header, payload []byte) (bool, error) {
			if h.Type != unix.NLMSG_ERROR {
				return false, nil
			}
			if err := nfnetlink.AckError(h, payload); err != nil {
				refused = append(refused, Refusal{b.owners[from+int(h.Seq-first)], err})
			}
			return h.Seq == c.seq, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for IPVS: %w", err)
		}
		from = to
	}
	if refused != nil {
		return refused
	}
	return nil
}

// receive calls f for each answer to the messages from a number on, until f says that
// it was the last.
func (c *Conn) receive(first uint32, f func(nfnetlink.Header, []byte) (last bool, err error)) error {
	if err := c.socket.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	for done := false; !done; {
		err := c.socket.Receive(func(h nfnetlink.Header, payload []byte) (err error) {
			if done || h.Seq < first || h.Seq > c.seq {
				return nil // a late answer to something older
			}
			done, err = f(h, payload)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// request sends a request and calls each with the attributes of every answer.
func (c *Conn) request(msg []byte, flags uint16, each func(attrs []byte)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	address(msg, c.family, flags, c.seq)
	if err := c.socket.Send(msg); err != nil {
		return err
	}
	return c.receive(c.seq, func(h nfnetlink.Header, payload []byte) (bool, error) {
		switch h.Type {
		case unix.NLMSG_ERROR:
			return true, nfnetlink.AckError(h, payload)
		case unix.NLMSG_DONE:
			return true, nil
		}
		if len(payload) < genHeaderLen {
			return true, nfnetlink.ErrMalformed
		}
		each(payload[genHeaderLen:])
		return false, nil
	})
}

// Services returns all virtual services, including those of other programs.
func (c *Conn) Services(ctx context.Context) (list []Service, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = c.request(appendRequest(nil, getService, nil), unix.NLM_F_DUMP, func(attrs []byte) {
		for typ, v := range nfnetlink.Attrs(attrs) {
			if typ == attrService {
				list = append(list, decodeService(v))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing the virtual services of IPVS: %w", err)
	}
	return list, nil
}

// Service returns one virtual service; ok is false if there is none.
func (c *Conn) Service(ctx context.Context, k Key) (s Service, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return Service{}, false, err
	}
	msg := appendRequest(nil, getService, nfnetlink.AppendAttr(nil, nfnetlink.Nested|attrService, encodeKey(k)))
	err = c.request(msg, unix.NLM_F_ACK, func(attrs []byte) {
		for typ, v := range nfnetlink.Attrs(attrs) {
			if typ == attrService {
				s, ok = decodeService(v), true
			}
		}
	})
	if errors.Is(err, unix.ESRCH) {
		return Service{}, false, nil
	}
	if err != nil {
		return Service{}, false, fmt.Errorf("reading the virtual service %s: %w", k, err)
	}
	return s, ok, nil
}

// Destinations returns the destinations of a virtual service, none if there is no such
// service.
func (c *Conn) Destinations(ctx context.Context, k Key) (list []Destination, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	msg := appendRequest(nil, getDest, nfnetlink.AppendAttr(nil, nfnetlink.Nested|attrService, encodeKey(k)))
	err = c.request(msg, unix.NLM_F_DUMP, func(attrs []byte) {
		for typ, v := range nfnetlink.Attrs(attrs) {
			if typ == attrDest {
				list = append(list, decodeDest(v, familyOf(k.Addr)))
			}
		}
	})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("listing the destinations of %s: %w", k, err)
	}
	return list, nil
}

// Timeouts are after how long without packets connections are forgotten. A zero stays
// as it is.
type Timeouts struct {
	TCP, TCPFIN, UDP time.Duration // TCPFIN is after the first FIN
}

// SetTimeouts sets the timeouts of the network namespace.
func (c *Conn) SetTimeouts(t Timeouts) error {
	var body []byte
	for _, a := range []struct {
		typ uint16
		d   time.Duration
	}{{attrTimeoutTCP, t.TCP}, {attrTimeoutFIN, t.TCPFIN}, {attrTimeoutUDP, t.UDP}} {
		if a.d > 0 {
			body = attr32(body, a.typ, uint32(a.d/time.Second))
		}
	}
	if body == nil {
		return nil
	}
	if err := c.request(appendRequest(nil, setConfig, body), unix.NLM_F_ACK, func([]byte) {}); err != nil {
		return fmt.Errorf("setting the timeouts of IPVS: %w", err)
	}
	return nil
}
