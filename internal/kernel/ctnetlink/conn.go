//go:build linux

package ctnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nfnetlink"
)

// Conn is a connection to connection tracking. Its methods may be called concurrently.
type Conn struct{ nl *nfnetlink.Conn }

// Dial opens a Conn in a network namespace, given as an open file descriptor; 0 is the
// caller's own.
func Dial(netns int) (*Conn, error) {
	nl, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	return &Conn{nl}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Find returns the entry of a flow from a client. The error is unix.ENOENT if there is none.
func (c *Conn) Find(f Flow) (Entry, error) { return c.find(TupleOrig, f) }

func (c *Conn) find(direction uint16, f Flow) (entry Entry, err error) {
	msg := AppendTuple(AppendHeader(nil, Get, 0, f.To.Addr()), direction, f)
	err = c.nl.Do(msg, func(payload []byte) error {
		if !entry.Decode(payload) {
			return nfnetlink.ErrMalformed
		}
		entry = entry.Clone()
		return nil
	})
	if err == nil && entry.ID == nil {
		err = nfnetlink.ErrMalformed
	}
	return entry, err
}

// OriginalDestination returns where a client sent the packets of a flow to before they
// were led to the flow's destination. The error is unix.ENOENT if no connection is known.
func (c *Conn) OriginalDestination(f Flow) (netip.AddrPort, error) {
	// What the receiver sees is the reply's tuple, the other way round.
	entry, err := c.find(TupleReply, f.reply())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the connection of %v to %v: %w", f.From, f.To, err)
	}
	return entry.To, nil
}

// SetSource makes the packets of a flow that does not exist yet leave with another
// source address, and its replies come back. The flow has to begin within the timeout.
// The error is unix.EEXIST if the flow exists; one of TCP that has ended, which the kernel
// remembers for two minutes, makes room.
func (c *Conn) SetSource(f Flow, source netip.Addr, timeout time.Duration) error {
	err := c.setSource(f, source, timeout)
	if !errors.Is(err, unix.EEXIST) || f.Protocol != inet.TCP {
		return err
	}
	if entry, ferr := c.Find(f); ferr != nil || !entry.Over() {
		return err
	}
	if err := c.Forget(f); err != nil {
		return err
	}
	return c.setSource(f, source, timeout)
}

func (c *Conn) setSource(f Flow, source netip.Addr, timeout time.Duration) error {
	msg := AppendHeader(nil, New, unix.NLM_F_CREATE|unix.NLM_F_EXCL, f.To.Addr())
	msg = AppendTuple(msg, TupleOrig, f)
	msg = AppendTuple(msg, TupleReply, f.reply())
	msg = nfnetlink.AppendAttr(msg, Timeout, binary.BigEndian.AppendUint32(nil, uint32(timeout/time.Second)))
	lowest, highest := uint16(NATIPv4Min), uint16(NATIPv4Max)
	if source.Is6() {
		lowest, highest = NATIPv6Min, NATIPv6Max
	}
	to := nfnetlink.AppendAttr(nil, lowest, source.AsSlice())
	to = nfnetlink.AppendAttr(to, highest, source.AsSlice())
	msg = nfnetlink.AppendAttr(msg, nfnetlink.Nested|NATSrc, to)
	if f.Protocol == inet.TCP {
		msg = AppendTCPState(msg, TCPSynSent) // the first packet is about to be sent
	}
	if err := c.nl.Do(msg, nil); err != nil {
		return fmt.Errorf("let %v appear as %v to %v: %w", f.From, source, f.To, err)
	}
	return nil
}

// Forget deletes the entry of a flow from a client, so that rules decide on its next packet as
// on the first of a new connection. There is no error if the flow is not known.
func (c *Conn) Forget(f Flow) error {
	msg := AppendTuple(AppendHeader(nil, Delete, 0, f.To.Addr()), TupleOrig, f)
	if err := c.nl.Do(msg, nil); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget the flow from %v to %v: %w", f.From, f.To, err)
	}
	return nil
}
