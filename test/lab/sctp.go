package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// The kernels that run this lab often have no SCTP sockets, while connection
// tracking and NAT know the protocol. So SCTP is spoken on raw sockets, as far
// as the first half of the handshake: an INIT, answered by an INIT ACK whose
// state cookie is the answer of the echo server, or by an ABORT.

// The chunk types in use, and the parameter of an INIT ACK.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpAbort   = 6

	sctpStateCookie = 7
)

const (
	sctpHeaderLen = 12
	sctpInitLen   = 20 // of an INIT chunk without parameters
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket is an SCTP packet of one chunk.
type sctpPacket struct {
	from, to uint16 // ports
	tag      uint32 // verification tag
	chunk    byte
	initTag  uint32 // of INIT and INIT ACK
	cookie   string // of INIT ACK
}

// marshal writes the packet with its checksum.
func (p sctpPacket) marshal() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0) // checksum
	b = append(b, p.chunk, 0, 0, 4)
	if p.chunk != sctpAbort {
		b = binary.BigEndian.AppendUint32(b, p.initTag)
		b = binary.BigEndian.AppendUint32(b, 1<<16) // receiver window
		b = binary.BigEndian.AppendUint16(b, 1)     // streams out
		b = binary.BigEndian.AppendUint16(b, 1)     // streams in
		b = binary.BigEndian.AppendUint32(b, p.initTag)
	}
	if p.cookie != "" {
		b = binary.BigEndian.AppendUint16(b, sctpStateCookie)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.cookie)))
		b = append(b, p.cookie...)
	}
	binary.BigEndian.PutUint16(b[sctpHeaderLen+2:], uint16(len(b)-sctpHeaderLen))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// parseSCTP reads a packet of this lab. A wrong checksum is an error: what
// rewrites addresses must repair it.
func parseSCTP(b []byte) (sctpPacket, error) {
	if len(b) < sctpHeaderLen+4 {
		return sctpPacket{}, errors.New("short SCTP packet")
	}
	sum := binary.LittleEndian.Uint32(b[8:])
	blank := slices.Clone(b)
	clear(blank[8:12])
	if crc32.Checksum(blank, castagnoli) != sum {
		return sctpPacket{}, errors.New("SCTP packet with a wrong checksum")
	}
	p := sctpPacket{
		from:  binary.BigEndian.Uint16(b),
		to:    binary.BigEndian.Uint16(b[2:]),
		tag:   binary.BigEndian.Uint32(b[4:]),
		chunk: b[sctpHeaderLen],
	}
	end := sctpHeaderLen + int(binary.BigEndian.Uint16(b[sctpHeaderLen+2:]))
	if end > len(b) {
		return sctpPacket{}, errors.New("cut off SCTP chunk")
	}
	if p.chunk == sctpInit || p.chunk == sctpInitAck {
		if end < sctpHeaderLen+sctpInitLen {
			return sctpPacket{}, errors.New("short SCTP INIT")
		}
		p.initTag = binary.BigEndian.Uint32(b[sctpHeaderLen+4:])
	}
	if p.chunk == sctpInitAck && end >= sctpHeaderLen+sctpInitLen+4 {
		p.cookie = string(b[sctpHeaderLen+sctpInitLen+4 : end])
	}
	return p, nil
}

// listenSCTP answers INITs that reach an address of the host.
func (l *Lab) listenSCTP(h *Host, at netip.Addr) error {
	file, err := h.socket(domainOf(at), unix.SOCK_RAW, unix.IPPROTO_SCTP, func(fd int) error {
		return bind(fd, netip.AddrPortFrom(at, 0))
	})
	if err != nil {
		return err
	}
	packets, err := net.FilePacketConn(file)
	file.Close() // packets has a copy
	if err != nil {
		return fmt.Errorf("SCTP on %v: %w", at, err)
	}
	l.onClose(packets.Close)
	go serveSCTP(h, packets.(*net.IPConn))
	return nil
}

// serveSCTP answers INITs on the echo ports and aborts those on other ports.
func serveSCTP(h *Host, conn *net.IPConn) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromIP(buffer)
		if err != nil {
			return
		}
		init, err := parseSCTP(buffer[:n])
		if err != nil || init.chunk != sctpInit {
			continue
		}
		reply := sctpPacket{from: init.to, to: init.from, tag: init.initTag, chunk: sctpAbort}
		if slices.Contains(EchoPorts, init.to) {
			source, _ := netip.AddrFromSlice(from.IP)
			reply.chunk, reply.initTag = sctpInitAck, init.initTag+1
			reply.cookie = Answer{By: h.Name, Port: init.to, Source: netip.AddrPortFrom(source.Unmap(), init.from)}.line()
		}
		_, _ = conn.WriteToIP(reply.marshal(), from) // as good as lost
	}
}
