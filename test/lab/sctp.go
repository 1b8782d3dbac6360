//go:build linux

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
// tracking and NAT know the protocol. So SCTP is spoken on raw sockets. For most
// purposes the first half of the handshake will do: an INIT, answered by an INIT ACK
// whose state cookie is the answer of the echo server, or by an ABORT. An association
// that stays has the other half, a COOKIE ECHO and a COOKIE ACK, and HEARTBEATs. The
// information in a HEARTBEAT ACK is the answer of the echo server.
//
// The server keeps no state: its tag is the client's plus one.

// The chunk types in use, and the parameters of an INIT ACK and a HEARTBEAT.
const (
	sctpInit         = 1
	sctpInitAck      = 2
	sctpHeartbeat    = 4
	sctpHeartbeatAck = 5
	sctpAbort        = 6
	sctpCookieEcho   = 10
	sctpCookieAck    = 11

	sctpHeartbeatInfo = 1
	sctpStateCookie   = 7
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
	text     string // the cookie, or the information of a HEARTBEAT
}

// marshal writes the packet with its checksum.
func (p sctpPacket) marshal() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0) // checksum
	b = append(b, p.chunk, 0, 0, 4)
	if p.chunk == sctpInit || p.chunk == sctpInitAck {
		b = binary.BigEndian.AppendUint32(b, p.initTag)
		b = binary.BigEndian.AppendUint32(b, 1<<16) // receiver window
		b = binary.BigEndian.AppendUint16(b, 1)     // streams out
		b = binary.BigEndian.AppendUint16(b, 1)     // streams in
		b = binary.BigEndian.AppendUint32(b, p.initTag)
	}
	if parameter := sctpParameter(p.chunk); parameter != 0 {
		b = binary.BigEndian.AppendUint16(b, parameter)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.text)))
	}
	b = append(b, p.text...)
	binary.BigEndian.PutUint16(b[sctpHeaderLen+2:], uint16(len(b)-sctpHeaderLen))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// sctpParameter returns the parameter that holds the text of a chunk, 0 for none.
func sctpParameter(chunk byte) uint16 {
	switch chunk {
	case sctpInitAck:
		return sctpStateCookie
	case sctpHeartbeat, sctpHeartbeatAck:
		return sctpHeartbeatInfo
	}
	return 0
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
	at := sctpHeaderLen + 4
	if p.chunk == sctpInit || p.chunk == sctpInitAck {
		at = sctpHeaderLen + sctpInitLen
	}
	if sctpParameter(p.chunk) != 0 {
		at += 4
	}
	p.text = string(b[min(at, end):end])
	return p, nil
}

// listenSCTP answers packets that reach an address of the host.
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

// serveSCTP answers on the echo ports and aborts INITs on other ports.
func serveSCTP(h *Host, conn *net.IPConn) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromIP(buffer)
		if err != nil {
			return
		}
		p, err := parseSCTP(buffer[:n])
		if err != nil {
			continue
		}
		source, _ := netip.AddrFromSlice(from.IP)
		answer := Answer{By: h.Name, Port: p.to, Source: netip.AddrPortFrom(source.Unmap(), p.from)}
		if reply, ok := p.answered(answer); ok {
			_, _ = conn.WriteToIP(reply.marshal(), from) // as good as lost
		}
	}
}

// answered returns the server's answer to a packet, if there is one.
func (p sctpPacket) answered(a Answer) (sctpPacket, bool) {
	reply := sctpPacket{from: p.to, to: p.from, tag: p.tag - 1}
	switch echo := slices.Contains(EchoPorts, p.to); {
	case p.chunk == sctpInit && !echo:
		reply.chunk, reply.tag = sctpAbort, p.initTag
	case p.chunk == sctpInit:
		reply.chunk, reply.tag, reply.initTag, reply.text = sctpInitAck, p.initTag, p.initTag+1, a.line()
	case p.chunk == sctpCookieEcho && echo:
		reply.chunk = sctpCookieAck
	case p.chunk == sctpHeartbeat && echo:
		reply.chunk, reply.text = sctpHeartbeatAck, a.line()
	default:
		return sctpPacket{}, false
	}
	return reply, true
}
