package lab

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// errAborted says that the other side sent an SCTP ABORT.
var errAborted = errors.New("SCTP association aborted")

// askSCTP sends an INIT and waits for what comes back to its ports.
func (c *conn) askSCTP() (Answer, error) {
	init := sctpPacket{from: c.local.Port(), to: c.to.Port(), chunk: sctpInit, initTag: rand.Uint32() | 1}
	packet := init.marshal()
	if err := c.send(packet); err != nil && !c.isForeign(err) {
		return Answer{}, err
	}
	defer c.repeat(packet)()
	var answer Answer
	err := c.wait(func() (err error) {
		answer, err = c.readSCTP(init)
		return err
	})
	return answer, err
}

// readSCTP waits for the answer to an INIT.
func (c *conn) readSCTP(init sctpPacket) (Answer, error) {
	buffer := make([]byte, 2048)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			if c.isForeign(err) {
				continue
			}
			return Answer{}, err
		}
		reply, err := parseSCTP(c.payload(buffer[:n]))
		if err != nil || reply.from != init.to || reply.to != init.from || reply.tag != init.initTag {
			continue // a neighbour's
		}
		if reply.chunk == sctpAbort {
			return Answer{}, errAborted
		}
		return parseAnswer(reply.cookie)
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
