//go:build linux

package ipvs

import (
	"encoding/binary"
	"net/netip"

	"sluice/internal/kernel/nfnetlink"
)

// Batch is a list of commands. The zero Batch is empty.
type Batch struct {
	buf    []byte
	starts []int // of the commands in buf
	owners []Key
}

// Len returns the number of commands.
func (b *Batch) Len() int { return len(b.starts) }

// AddService adds a virtual service without destinations.
func (b *Batch) AddService(s *Service) { b.service(newService, s.Key, encodeService(s)) }

// SetService changes the scheduler, flags and timeout of a virtual service. Its
// destinations and connections stay.
func (b *Batch) SetService(s *Service) { b.service(setService, s.Key, encodeService(s)) }

// DeleteService deletes a virtual service with its destinations.
func (b *Batch) DeleteService(k Key) { b.service(delService, k, encodeKey(k)) }

// AddDestination adds a destination.
func (b *Batch) AddDestination(k Key, d Destination) { b.dest(newDest, k, encodeDest(d)) }

// SetDestination changes the weight of a destination.
func (b *Batch) SetDestination(k Key, d Destination) { b.dest(setDest, k, encodeDest(d)) }

// DeleteDestination deletes a destination. With the sysctl expire_nodest_conn its
// connections end with their next packet.
func (b *Batch) DeleteDestination(k Key, at netip.AddrPort) { b.dest(delDest, k, encodeDestKey(at)) }

func (b *Batch) service(command uint8, k Key, attrs []byte) {
	b.add(command, k, nfnetlink.AppendAttr(nil, nfnetlink.Nested|attrService, attrs))
}

func (b *Batch) dest(command uint8, k Key, attrs []byte) {
	body := nfnetlink.AppendAttr(nil, nfnetlink.Nested|attrService, encodeKey(k))
	b.add(command, k, nfnetlink.AppendAttr(body, nfnetlink.Nested|attrDest, attrs))
}

func (b *Batch) add(command uint8, owner Key, body []byte) {
	b.starts, b.owners = append(b.starts, len(b.buf)), append(b.owners, owner)
	b.buf = appendRequest(b.buf, 0, command, body)
}

// appendRequest appends a command to a family of generic netlink. That of a Batch is not known
// before messages.
func appendRequest(b []byte, family uint16, command uint8, body []byte) []byte {
	at := len(b)
	b = append(nfnetlink.AppendHeader(b, family, 0), command, familyVersion, 0, 0)
	b = append(b, body...)
	nfnetlink.EndMessage(b, at)
	return b
}

// messages returns some commands, the last of which is acknowledged.
func (b *Batch) messages(from, to int, family uint16) []byte {
	const typeAt = 4 // in the netlink header
	for _, at := range b.starts[from:to] {
		binary.NativeEndian.PutUint16(b.buf[at+typeAt:], family)
	}
	nfnetlink.RequestAck(b.buf, b.starts[to-1])
	return b.buf[b.starts[from]:b.end(to)]
}

// chunkSize is about how many bytes are sent at once: the answers to that many commands
// fit into the socket's buffer even if all of them are refused.
const chunkSize = 128 << 10

// chunk returns the end of the commands to send after the first from.
func (b *Batch) chunk(from int) (to int) {
	for to = from + 1; to < len(b.starts) && b.starts[to]-b.starts[from] < chunkSize; to++ {
	}
	return to
}

// end returns where in buf the commands before the first n end.
func (b *Batch) end(n int) int {
	if n == len(b.starts) {
		return len(b.buf)
	}
	return b.starts[n]
}
