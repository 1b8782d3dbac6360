//go:build linux

package lab

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Protocol is a transport protocol, by its name in lower case.
type Protocol string

// The protocols that probes and echo servers speak.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Flow is an attempt of a host to connect to an address and port.
type Flow struct {
	From     string // name of the host
	Protocol Protocol
	To       netip.AddrPort
	// Source is an address of the host other than its first.
	Source netip.Addr
	// Timeout is how long to wait for an answer, DefaultTimeout if zero. Where
	// no answer is expected, ShortTimeout saves time. A busy machine extends it.
	Timeout time.Duration
}

// DefaultTimeout leaves room for one lost SYN; ShortTimeout is for probes that are
// expected to get no answer.
const (
	DefaultTimeout = 2500 * time.Millisecond
	ShortTimeout   = 100 * time.Millisecond
)

func (f Flow) String() string {
	return fmt.Sprintf("%s -> %v/%s", f.From, f.To, f.Protocol)
}

// Kind is how an attempt ended.
type Kind string

// The kinds of outcomes.
const (
	// Answered: an echo server answered.
	Answered Kind = "answered"
	// Refused: a TCP reset, an SCTP abort or an ICMP error came back.
	Refused Kind = "refused"
	// Dropped: nothing came back, and nothing reached the world either.
	Dropped Kind = "dropped"
	// Passed: nothing came back, but the packet left node1 for the world with its
	// addresses unchanged: the proxy left it alone.
	Passed Kind = "passed"
	// Failed: the attempt could not be made.
	Failed Kind = "failed"
)

// Outcome is the outcome of an attempt as its host saw it.
type Outcome struct {
	Kind
	// Answer is the echo server's answer, if there is one.
	Answer
	RTT time.Duration
	// Err is the error behind a refusal or failure.
	Err error
}

func (o Outcome) String() string {
	switch {
	case o.Kind == Answered:
		return fmt.Sprintf("answered by %s:%d, which saw %v", o.By, o.Port, o.Source)
	case o.Err != nil:
		return fmt.Sprintf("%s (%v)", o.Kind, o.Err)
	}
	return string(o.Kind)
}

// Answer is the answer of an echo server: its name and the source it saw.
type Answer struct {
	By     string // name of the host
	Port   uint16 // the port it listens on
	Source netip.AddrPort
}

// line is the wire format of an answer.
func (a Answer) line() string {
	return fmt.Sprintf("%s %d %v\n", a.By, a.Port, a.Source)
}

// parseAnswer reads a line of an echo server.
func parseAnswer(line string) (Answer, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return Answer{}, fmt.Errorf("%q is no answer of an echo server", line)
	}
	port, err := strconv.ParseUint(fields[1], 10, 16)
	if err != nil {
		return Answer{}, fmt.Errorf("port in answer: %w", err)
	}
	source, err := netip.ParseAddrPort(fields[2])
	if err != nil {
		return Answer{}, fmt.Errorf("source in answer: %w", err)
	}
	return Answer{By: fields[0], Port: uint16(port), Source: source}, nil
}
