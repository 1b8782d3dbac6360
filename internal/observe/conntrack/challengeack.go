//go:build linux

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns"
	"sluice/internal/model"
)

// connection is a TCP connection as each end knows it: its own address and that
// of its peer.
type connection struct{ client, server [2]netip.AddrPort }

// connectionOf returns the zero connection if the flow is not an established
// TCP connection.
func connectionOf(f *flow) connection {
	if f.Protocol != model.TCP || !f.Established() {
		return connection{}
	}
	return connection{client: [...]netip.AddrPort{f.From, f.To}, server: [...]netip.AddrPort{f.By, f.ReplyTo}}
}

// challenger provokes challenge ACKs (RFC 5961) from the ends of TCP
// connections whose entries were deleted, so that the connections are reset.
//
// A reset is only valid with the exact sequence number that its receiver
// expects, which the connection tracking table does not know. But TCP answers
// an unacceptable segment with an ACK that contains the expected numbers. That
// ACK matches no entry, is handled by the rules as if it opened a connection,
// and the host that gets it knows of no connection and answers with a reset
// that has the right sequence number.
//
// The segment is a SYN-ACK: connection tracking creates no entry for it,
// neither here nor on its way.
type challenger struct {
	netns   int
	sockets [2]int // of IPv4 and IPv6, plus one, so that 0 is none
	buf     []byte
	err     error // the first error
}

// provoke makes both ends send a challenge ACK. Unreachable ends are ignored.
func (c *challenger) provoke(conn connection) {
	if c == nil || !conn.client[0].IsValid() {
		return
	}
	for _, end := range [...][2]netip.AddrPort{conn.client, conn.server} {
		if err := c.send(end[1], end[0]); err != nil && c.err == nil {
			c.err = fmt.Errorf("sending to the ends of TCP connections: %w", err)
		}
	}
}

func (c *challenger) close() {
	for _, s := range c.sockets {
		if s != 0 {
			unix.Close(s - 1)
		}
	}
}

func (c *challenger) send(from, to netip.AddrPort) error {
	fd, err := c.socket(model.FamilyOf(to.Addr()))
	if err != nil {
		return err
	}
	c.buf = appendSynAck(c.buf[:0], from, to)
	var at unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		at = &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	err = unix.Sendto(fd, c.buf, unix.MSG_DONTWAIT, at)
	if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) {
		return nil
	}
	return os.NewSyscallError("sendto", err)
}

// socket opens the raw socket of a family when it is first needed. With
// IPPROTO_RAW it takes whole packets.
func (c *challenger) socket(f model.Family) (int, error) {
	i, domain := 0, unix.AF_INET
	if f == model.IPv6 {
		i, domain = 1, unix.AF_INET6
	}
	if c.sockets[i] != 0 {
		return c.sockets[i] - 1, nil
	}
	var fd int
	err := netns.Do(c.netns, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return os.NewSyscallError("socket", err)
	})
	if err == nil {
		c.sockets[i] = fd + 1
	}
	return fd, err
}

const (
	tcpHeaderLen  = 20
	ipv4HeaderLen = 20
	ipv6HeaderLen = 40
	hopLimit      = 64

	tcpFlagSYN = 1 << 1
	tcpFlagACK = 1 << 4
)

// appendSynAck appends a packet with a SYN-ACK and nothing else. The kernel
// fills in the IPv4 checksum.
func appendSynAck(b []byte, from, to netip.AddrPort) []byte {
	src, dst := from.Addr().AsSlice(), to.Addr().AsSlice()
	if from.Addr().Is4() {
		b = append(b, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, ipv4HeaderLen+tcpHeaderLen)
		b = append(b, 0, 0, 0, 0, hopLimit, unix.IPPROTO_TCP, 0, 0)
	} else {
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, tcpHeaderLen)
		b = append(b, unix.IPPROTO_TCP, hopLimit)
	}
	b = append(append(b, src...), dst...)
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, tcpHeaderLen/4<<4, tcpFlagSYN|tcpFlagACK, 0, 0, 0, 0, 0, 0)
	sum := sumWords(unix.IPPROTO_TCP+tcpHeaderLen, src, dst, b[at:])
	binary.BigEndian.PutUint16(b[at+16:], ^sum)
	return b
}

// sumWords returns the one's complement sum of 16-bit words, as in the TCP
// checksum.
func sumWords(sum uint32, parts ...[]byte) uint16 {
	for _, p := range parts {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
