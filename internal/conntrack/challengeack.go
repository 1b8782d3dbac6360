package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/netns"
)

// connection is a TCP connection as its ends know it, each by its own address
// and by that of its peer.
type connection struct{ client, server [2]netip.AddrPort }

// connectionOf is the zero connection if there are no two ends that take a flow
// for one.
func connectionOf(f *flow) connection {
	if f.protocol != model.TCP || !f.standing() {
		return connection{}
	}
	return connection{client: [...]netip.AddrPort{f.from, f.to}, server: [...]netip.AddrPort{f.by, f.replyTo}}
}

// challenger makes the ends of TCP connections speak whose entries are gone.
//
// A reset is valid only with the number of the very byte that its receiver
// expects, which the connection tracking table does not know. But TCP answers a
// segment that cannot be right by saying what it does expect (RFC 5961). That
// answer meets no entry, is decided by the rules as if it began a connection,
// and whoever gets it knows of none and resets, with the right number.
//
// The segment is a SYN-ACK: connection tracking takes none for the beginning of
// a connection, here and on its way, and so makes no entry for it.
type challenger struct {
	netns   int
	sockets [2]int // of IPv4 and IPv6, less one, so that 0 is none
	buf     []byte
	err     error // the first that kept it from ringing
}

// provoke makes both ends speak. One that cannot be reached has nobody to tell.
func (b *challenger) provoke(c connection) {
	if b == nil || !c.client[0].IsValid() {
		return
	}
	for _, end := range [...][2]netip.AddrPort{c.client, c.server} {
		if err := b.send(end[1], end[0]); err != nil && b.err == nil {
			b.err = fmt.Errorf("sending to the ends of TCP connections: %w", err)
		}
	}
}

func (b *challenger) close() {
	for _, s := range b.sockets {
		if s != 0 {
			unix.Close(s - 1)
		}
	}
}

func (b *challenger) send(from, to netip.AddrPort) error {
	fd, err := b.socket(model.FamilyOf(to.Addr()))
	if err != nil {
		return err
	}
	b.buf = appendSynAck(b.buf[:0], from, to)
	var at unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		at = &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	err = unix.Sendto(fd, b.buf, unix.MSG_DONTWAIT, at)
	if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) {
		return nil
	}
	return os.NewSyscallError("sendto", err)
}

// socket opens the raw socket of a family when it is first needed. Those of
// IPPROTO_RAW are given whole packets.
func (b *challenger) socket(f model.Family) (int, error) {
	i, domain := 0, unix.AF_INET
	if f == model.IPv6 {
		i, domain = 1, unix.AF_INET6
	}
	if b.sockets[i] != 0 {
		return b.sockets[i] - 1, nil
	}
	var fd int
	err := netns.Do(b.netns, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return os.NewSyscallError("socket", err)
	})
	if err == nil {
		b.sockets[i] = fd + 1
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
// fills in the checksum of IPv4.
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

// sumWords is the sum of 16 bit words in one's complement, as TCP checks it.
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
