//go:build linux

package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// concurrentProbes bounds how many attempts are under way in one Probe.
const concurrentProbes = 64

// Probe makes all attempts, many at a time, and returns their outcomes in the
// same order. Attempts that a done context leaves undone are Failed.
func (l *Lab) Probe(ctx context.Context, flows []Flow) []Outcome {
	outcomes := make([]Outcome, len(flows))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(concurrentProbes, len(flows)) {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = l.Connect(ctx, flows[i])
			}
		})
	}
	for i := range flows {
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes
}

// Connect makes one attempt.
func (l *Lab) Connect(ctx context.Context, f Flow) Outcome {
	if err := ctx.Err(); err != nil {
		return Outcome{Kind: Failed, Err: err}
	}
	start := time.Now()
	outcome := l.attempt(f)
	outcome.RTT = time.Since(start)
	return outcome
}

func (l *Lab) attempt(f Flow) Outcome {
	c, err := l.socketFor(f)
	if err != nil {
		return Outcome{Kind: Failed, Err: err}
	}
	defer c.Close()
	if l.world != nil && l.Owner(f.To.Addr()) == nil {
		sent := capture{f.Protocol, c.local, f.To}
		c.passed = l.world.expect(sent)
		defer l.world.forget(sent)
	}
	answer, err := c.converse()
	switch {
	case err == nil:
		return Outcome{Kind: Answered, Answer: answer}
	case errors.Is(err, errPassed):
		return Outcome{Kind: Passed}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Outcome{Kind: Dropped}
	case isRefusal(err):
		return Outcome{Kind: Refused, Err: err}
	}
	return Outcome{Kind: Failed, Err: err}
}

// isRefusal reports whether an error is how the kernel reports a reset or an
// ICMP error.
func isRefusal(err error) bool {
	for _, refusal := range []error{errAborted, unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH,
		unix.ENETUNREACH, unix.ENOPROTOOPT, unix.EPROTO, unix.EACCES} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// conn is a socket on its way to a flow's destination.
type conn struct {
	*os.File
	protocol  Protocol
	local, to netip.AddrPort
	timeout   time.Duration // for each wait
	world     *witness
	passed    <-chan struct{} // closed when the packet is seen in the world; nil for nobody looks
	asked     int             // questions over UDP
	tags      sctpTags
}

// socketFor makes the socket for a flow, bound to a source port of its own.
func (l *Lab) socketFor(f Flow) (*conn, error) {
	h, err := l.Host(f.From)
	if err != nil {
		return nil, err
	}
	if f.Timeout == 0 {
		f.Timeout = DefaultTimeout
	}
	kind, number := unix.SOCK_STREAM, 0
	switch f.Protocol {
	case UDP:
		kind = unix.SOCK_DGRAM
	case SCTP:
		kind, number = unix.SOCK_RAW, unix.IPPROTO_SCTP
	}
	c := &conn{protocol: f.Protocol, to: f.To, timeout: f.Timeout, world: l.world}
	own := h.Addrs[v4]
	if f.To.Addr().Is6() {
		own = h.Addrs[v6]
	}
	if f.Source.IsValid() {
		own = f.Source
	}
	c.File, err = h.socket(domainOf(f.To.Addr()), kind, number, func(fd int) error {
		// Without a choice the kernel picks the source address itself, as it would
		// for any program.
		for {
			c.local = netip.AddrPortFrom(own, h.sourcePort())
			err := bindSource(fd, c, f.Source)
			if !errors.Is(err, unix.EADDRINUSE) {
				return err
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", f, err)
	}
	return c, nil
}

func bindSource(fd int, c *conn, source netip.Addr) error {
	switch c.protocol {
	case SCTP: // has its ports in the packets we write; wants the full error
		if c.to.Addr().Is4() {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	case TCP: // close with a reset: nothing waits and nothing lingers
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return err
		}
	}
	switch {
	case source.IsValid():
	case c.to.Addr().Is6():
		source = unspecified(v6)
	default:
		source = unspecified(v4)
	}
	return bind(fd, netip.AddrPortFrom(source, c.local.Port()))
}

// lastLook is how long to look once more when the time is up.
const lastLook = 30 * time.Millisecond

// errPassed says that a packet is in the world, where nobody answers.
var errPassed = errors.New("seen in the world")

// wait runs an operation that ends with the deadline, which moves while the machine is
// busy: what is late is not lost. If a packet that was sent last of all has arrived, an
// answer has, too; so it looks once more then.
func (c *conn) wait(operation func() error) error {
	defer c.stopWhenPassed()()
	start := time.Now()
	for timeout := c.timeout; ; timeout = testkit.Scaled(c.timeout) {
		left := timeout - time.Since(start)
		last := left <= 0
		if last {
			if c.world != nil {
				c.world.catchUp()
			}
			left = lastLook
		}
		if err := c.SetDeadline(time.Now().Add(left)); err != nil {
			return err
		}
		if c.hasPassed() { // before this deadline
			return errPassed
		}
		err := operation()
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.hasPassed():
			return errPassed
		case last:
			return err
		}
	}
}

// hasPassed reports whether the packet is in the world.
func (c *conn) hasPassed() bool {
	select {
	case <-c.passed:
		return true
	default:
		return false
	}
}

// stopWhenPassed ends what the socket does as soon as the packet is in the world, until the
// returned function is called.
func (c *conn) stopWhenPassed() (stop func()) {
	if c.passed == nil {
		return func() {}
	}
	stopped := make(chan struct{})
	go func() {
		select {
		case <-c.passed:
			_ = c.SetDeadline(time.Now()) // fails on a closed socket only
		case <-stopped:
		}
	}()
	return func() { close(stopped) }
}

// connect waits until the connection stands or has failed.
func (c *conn) connect() error { return c.wait(c.tryConnect) }

func (c *conn) tryConnect() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	to := sockaddr(c.to)
	if c.protocol == SCTP {
		to = sockaddr(netip.AddrPortFrom(c.to.Addr(), 0))
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = unix.Connect(int(fd), to) }); err != nil {
		return err
	}
	switch {
	case errors.Is(result, unix.EISCONN):
		return nil
	case !errors.Is(result, unix.EINPROGRESS) && !errors.Is(result, unix.EALREADY):
		return result
	}
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if result = err; err != nil {
			return true
		}
		if code != 0 {
			result = syscall.Errno(code)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, result)
}

// converse connects and has one answer.
func (c *conn) converse() (Answer, error) {
	if err := c.connect(); err != nil {
		return Answer{}, err
	}
	switch c.protocol {
	case SCTP:
		return c.askSCTP()
	case UDP:
		defer c.repeat(question(c.asked + 1))()
	}
	return c.ask()
}

// question is the text of one over UDP.
func question(number int) []byte { return fmt.Appendf(nil, "who? %d\n", number) }

// ask sends a line and reads one.
func (c *conn) ask() (Answer, error) {
	if c.protocol == UDP {
		return c.askUDP()
	}
	if err := c.send([]byte("who?\n")); err != nil {
		return Answer{}, err
	}
	return c.listen()
}

// askUDP sends a datagram and waits for its answer. Late answers to earlier ones do not count.
func (c *conn) askUDP() (answer Answer, err error) {
	c.asked++
	asked := question(c.asked)
	if err := c.send(asked); err != nil {
		return Answer{}, err
	}
	packet := make([]byte, 512)
	err = c.wait(func() error {
		for {
			n, err := c.Read(packet)
			if err != nil {
				return err
			}
			line, to, _ := bytes.Cut(packet[:n], []byte("\n"))
			if bytes.Equal(to, asked) {
				answer, err = parseAnswer(string(line))
				return err
			}
		}
	})
	return answer, err
}

// listen reads a line.
func (c *conn) listen() (Answer, error) {
	line := ""
	err := c.wait(func() error {
		more, err := bufio.NewReaderSize(c, 256).ReadString('\n')
		line += more
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(line)
}

// send writes a packet. That a rule on this very host dropped it is no error
// yet: if the rule rejects, an ICMP error follows, which the reader learns of.
func (c *conn) send(packet []byte) error {
	if err := c.SetDeadline(testkit.Deadline(c.timeout)); err != nil {
		return err
	}
	if _, err := c.Write(packet); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// repeat sends a packet again from time to time, since nothing else repeats
// what a busy machine lost, until the returned function is called.
func (c *conn) repeat(packet []byte) (stop func()) {
	stopped := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for pause := 100 * time.Millisecond; ; pause *= 2 {
			select {
			case <-stopped:
				return
			case <-time.After(pause):
				_, _ = c.Write(packet) // the reader learns of errors
			}
		}
	})
	return func() { close(stopped); sender.Wait() }
}
