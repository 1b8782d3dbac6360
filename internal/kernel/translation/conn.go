package translation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
)

// Message types of ctnetlink.
const (
	newEntry = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW
	getEntry = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	delEntry = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE
)

// answerTimeout bounds the wait for an answer, which the kernel gives at once.
const answerTimeout = 5 * time.Second

// Flow is a connection, as one of its ends sees it.
type Flow struct {
	Protocol inet.Protocol
	From, To netip.AddrPort
}

// Conn is a connection to connection tracking. Its methods may be called concurrently.
type Conn struct {
	mu     sync.Mutex
	socket *nfnetlink.Socket
	seq    uint32
	buf    []byte
}

// Dial opens a Conn in a network namespace, given as an open file descriptor; 0 is the
// caller's own.
func Dial(netns int) (*Conn, error) {
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	return &Conn{socket: socket}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// OriginalDestination returns where a client sent the packets of a flow to before they
// were led to the flow's destination. The error is unix.ENOENT if no connection is known.
func (c *Conn) OriginalDestination(f Flow) (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(getEntry, 0, f)
	// What the receiver sees is the reply's tuple, the other way round.
	c.attr(nfnetlink.Nested|cta.TupleReply, tuple(Flow{f.Protocol, f.To, f.From}))
	var to netip.AddrPort
	err := c.request(func(attrs []byte) { to = originalDestination(attrs) })
	if err == nil && !to.IsValid() {
		err = nfnetlink.ErrMalformed
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the connection of %v to %v: %w", f.From, f.To, err)
	}
	return to, nil
}

// SetSource makes the packets of a flow that does not exist yet leave with another
// source address, and its replies come back. The flow has to begin within the timeout.
// The error is unix.EEXIST if the flow exists; one of TCP that has ended, which the kernel
// remembers for two minutes, makes room.
func (c *Conn) SetSource(f Flow, source netip.Addr, timeout time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.setSource(f, source, timeout)
	if errors.Is(err, unix.EEXIST) && f.Protocol == inet.TCP && c.ended(f) {
		if err := c.forget(f); err != nil {
			return err
		}
		err = c.setSource(f, source, timeout)
	}
	return err
}

// ended reports whether a TCP connection is known to have ended.
func (c *Conn) ended(f Flow) bool {
	c.begin(getEntry, 0, f)
	c.attr(nfnetlink.Nested|cta.TupleOrig, tuple(f))
	state := uint8(0)
	err := c.request(func(attrs []byte) {
		for typ, v := range nfnetlink.Attrs(attrs) {
			if typ == cta.ProtoInfo {
				state = cta.TCPState(v)
			}
		}
	})
	return err == nil && state >= cta.TCPTimeWait
}

func (c *Conn) setSource(f Flow, source netip.Addr, timeout time.Duration) error {
	c.begin(newEntry, unix.NLM_F_CREATE|unix.NLM_F_EXCL, f)
	c.attr(nfnetlink.Nested|cta.TupleOrig, tuple(f))
	c.attr(nfnetlink.Nested|cta.TupleReply, tuple(Flow{f.Protocol, f.To, f.From}))
	c.attr(cta.Timeout, binary.BigEndian.AppendUint32(nil, uint32(timeout/time.Second)))
	lowest, highest := uint16(cta.NATIPv4Min), uint16(cta.NATIPv4Max)
	if source.Is6() {
		lowest, highest = cta.NATIPv6Min, cta.NATIPv6Max
	}
	to := nfnetlink.AppendAttr(nil, lowest, source.AsSlice())
	to = nfnetlink.AppendAttr(to, highest, source.AsSlice())
	c.attr(nfnetlink.Nested|cta.NATSrc, to)
	if f.Protocol == inet.TCP {
		c.attr(nfnetlink.Nested|cta.ProtoInfo, synSent)
	}
	if err := c.request(func([]byte) {}); err != nil {
		return fmt.Errorf("let %v appear as %v to %v: %w", f.From, source, f.To, err)
	}
	return nil
}

// Forget undoes SetSource, so that later flows between the same addresses are left as
// they are. There is no error if the flow is not known.
func (c *Conn) Forget(f Flow) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forget(f)
}

func (c *Conn) forget(f Flow) error {
	c.begin(delEntry, 0, f)
	c.attr(nfnetlink.Nested|cta.TupleOrig, tuple(f))
	if err := c.request(func([]byte) {}); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget the flow from %v to %v: %w", f.From, f.To, err)
	}
	return nil
}

// synSent is the state of a TCP connection whose first packet is about to be sent. The
// kernel asks for a state.
var synSent = nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.ProtoInfoTCP,
	nfnetlink.AppendAttr(nil, cta.ProtoInfoTCPState, []byte{cta.TCPSynSent}))

func (c *Conn) begin(typ, flags uint16, f Flow) {
	family := uint8(unix.NFPROTO_IPV4)
	if f.To.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	c.buf = nfnetlink.AppendHeader(c.buf[:0], typ, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags, family, 0)
}

func (c *Conn) attr(typ uint16, value []byte) { c.buf = nfnetlink.AppendAttr(c.buf, typ, value) }

// request sends the message, passes the attributes of what is answered to found, and
// waits for the acknowledgement. An answer to an earlier request, which was not waited
// for long enough, is skipped.
func (c *Conn) request(found func(attrs []byte)) error {
	c.seq++
	nfnetlink.EndMessage(c.buf, 0)
	nfnetlink.SetSeq(c.buf, 0, c.seq)
	if err := c.socket.Send(c.buf); err != nil {
		return err
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	for done := false; !done; {
		var result error
		err := c.socket.Receive(func(h nfnetlink.Header, payload []byte) error {
			switch {
			case h.Seq != c.seq:
			case h.Type == unix.NLMSG_ERROR:
				done, result = true, nfnetlink.AckError(h, payload)
			case len(payload) >= nfnetlink.GenHeaderLen:
				found(payload[nfnetlink.GenHeaderLen:])
			}
			return nil
		})
		if err := errors.Join(err, result); err != nil {
			return err
		}
	}
	return nil
}

func tuple(f Flow) []byte {
	src, dst := uint16(cta.IPv4Src), uint16(cta.IPv4Dst)
	if f.To.Addr().Is6() {
		src, dst = cta.IPv6Src, cta.IPv6Dst
	}
	ip := nfnetlink.AppendAttr(nil, src, f.From.Addr().AsSlice())
	ip = nfnetlink.AppendAttr(ip, dst, f.To.Addr().AsSlice())
	proto := nfnetlink.AppendAttr(nil, cta.ProtoNum, []byte{byte(f.Protocol)})
	proto = nfnetlink.AppendAttr(proto, cta.ProtoSrcPort, binary.BigEndian.AppendUint16(nil, f.From.Port()))
	proto = nfnetlink.AppendAttr(proto, cta.ProtoDstPort, binary.BigEndian.AppendUint16(nil, f.To.Port()))
	b := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleIP, ip)
	return nfnetlink.AppendAttr(b, nfnetlink.Nested|cta.TupleProto, proto)
}

// originalDestination returns the destination of the original tuple of an entry, an
// invalid one if there is none.
func originalDestination(attrs []byte) netip.AddrPort {
	var addr netip.Addr
	var port uint16
	for typ, entry := range nfnetlink.Attrs(attrs) {
		if typ != cta.TupleOrig {
			continue
		}
		for part, v := range nfnetlink.Attrs(entry) {
			for typ, v := range nfnetlink.Attrs(v) {
				switch {
				case part == cta.TupleIP && (typ == cta.IPv4Dst || typ == cta.IPv6Dst):
					addr, _ = netip.AddrFromSlice(v)
				case part == cta.TupleProto && typ == cta.ProtoDstPort && len(v) == 2:
					port = binary.BigEndian.Uint16(v)
				}
			}
		}
	}
	return netip.AddrPortFrom(addr, port)
}
