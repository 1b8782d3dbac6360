//go:build linux

package lab

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// errAborted says that the other side sent an SCTP ABORT.
var errAborted = errors.New("SCTP association aborted")

// sctpTags are the verification tags of an association: that of packets from the
// client's peer, and that of the client's own.
type sctpTags struct{ in, out uint32 }

// askSCTP sends an INIT and returns the answer that comes back.
func (c *conn) askSCTP() (Answer, error) {
	ack, err := c.initSCTP()
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(ack.text)
}

// initSCTP makes the first half of the handshake.
func (c *conn) initSCTP() (ack sctpPacket, err error) {
	c.tags = sctpTags{in: rand.Uint32() | 1}
	ack, err = c.exchange(sctpPacket{chunk: sctpInit, initTag: c.tags.in}, sctpInitAck)
	c.tags.out = ack.initTag
	return ack, err
}

// associate makes the whole handshake.
func (c *conn) associate() error {
	ack, err := c.initSCTP()
	if err == nil {
		_, err = c.exchange(sctpPacket{chunk: sctpCookieEcho, text: ack.text}, sctpCookieAck)
	}
	return err
}

// heartbeat has an answer on a standing association.
func (c *conn) heartbeat() (Answer, error) {
	ack, err := c.exchange(sctpPacket{chunk: sctpHeartbeat, text: "who?"}, sctpHeartbeatAck)
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(ack.text)
}

// abort ends an association without waiting for anything.
func (c *conn) abort() {
	_ = c.send(c.addressed(sctpPacket{chunk: sctpAbort})) // as good as lost
}

// addressed returns a packet with the connection's ports and tag.
func (c *conn) addressed(p sctpPacket) []byte {
	p.from, p.to, p.tag = c.local.Port(), c.to.Port(), c.tags.out
	return p.marshal()
}

// exchange sends a packet and waits for a chunk in return.
func (c *conn) exchange(p sctpPacket, want byte) (reply sctpPacket, err error) {
	packet := c.addressed(p)
	if err := c.send(packet); err != nil && !c.isForeign(err) {
		return reply, err
	}
	defer c.repeat(packet)()
	err = c.wait(func() (err error) {
		reply, err = c.readSCTP(want)
		return err
	})
	return reply, err
}

// readSCTP waits for a chunk.
func (c *conn) readSCTP(want byte) (sctpPacket, error) {
	buffer := make([]byte, 2048)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			if c.isForeign(err) {
				continue
			}
			return sctpPacket{}, err
		}
		reply, err := parseSCTP(c.payload(buffer[:n]))
		if err != nil || reply.from != c.to.Port() || reply.to != c.local.Port() || reply.tag != c.tags.in {
			continue // a neighbour's
		}
		switch reply.chunk {
		case sctpAbort:
			return sctpPacket{}, errAborted
		case want:
			return reply, nil
		}
	}
}

// payload cuts off the header, which raw sockets deliver for IPv4 only.
func (c *conn) payload(b []byte) []byte {
	if c.to.Addr().Is4() && len(b) > 0 {
		return b[min(len(b), int(b[0]&15)*4):]
	}
	return b
}

// isForeign reports whether an error on the socket is due to another host's
// packet: a raw socket gets the ICMP errors of all packets to its destination.
// The kernel keeps the start of the packet in question for us.
func (c *conn) isForeign(err error) bool {
	if !isRefusal(err) {
		return false
	}
	raw, rawErr := c.SyscallConn()
	if rawErr != nil {
		return false
	}
	mine := false
	_ = raw.Control(func(fd uintptr) { // fails on a closed socket only
		packet, control := make([]byte, 128), make([]byte, 512)
		for {
			n, _, _, _, err := unix.Recvmsg(int(fd), packet, control, unix.MSG_ERRQUEUE)
			if err != nil {
				return
			}
			if n >= 4 && binary.BigEndian.Uint16(packet) == c.local.Port() &&
				binary.BigEndian.Uint16(packet[2:]) == c.to.Port() {
				mine = true
			}
		}
	})
	return !mine
}
