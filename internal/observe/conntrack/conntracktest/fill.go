// Package conntracktest writes entries into connection tracking tables, as if
// there had been traffic: very many of them in a short time, for tests and
// benchmarks.
package conntracktest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/cta"
	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// Entry is an entry to write.
type Entry struct {
	From     netip.AddrPort // the client
	To       netip.AddrPort // where the client sends to
	By       netip.AddrPort // who answers
	Protocol model.Protocol
	Zone     uint16
	TCPState uint8 // of a TCP connection; 0 for that of a new one
}

const (
	newEntry = unix.NFNL_SUBSYS_CTNETLINK << 8 // IPCTNL_MSG_CT_NEW

	// lifetime is in seconds, and longer than any test.
	lifetime = 24 * 3600
	// atOnce is how many entries share a datagram.
	atOnce = 512
)

// Fill writes entries into the table of a network namespace, given as an open
// file descriptor.
func Fill(netns int, entries iter.Seq[Entry]) error {
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer socket.Close()
	w := writer{socket: socket}
	for e := range entries {
		w.add(&e)
		if w.count == atOnce {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

// writer batches entries.
type writer struct {
	socket *nfnetlink.Socket
	msgs   []byte
	last   int // where the last message begins
	count  int
	seq    uint32
}

func (w *writer) add(e *Entry) {
	family := uint8(unix.NFPROTO_IPV4)
	if e.To.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	w.last = len(w.msgs)
	w.seq++
	w.count++
	w.msgs = nfnetlink.AppendHeader(w.msgs, newEntry, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL, family, 0)
	w.msgs = nfnetlink.AppendAttr(w.msgs, nfnetlink.Nested|cta.TupleOrig, Tuple(e.From, e.To, e.Protocol))
	w.msgs = nfnetlink.AppendAttr(w.msgs, nfnetlink.Nested|cta.TupleReply, Tuple(e.By, e.From, e.Protocol))
	if e.Protocol != model.TCP || e.TCPState > cta.TCPSynSent { // the kernel refuses to have it cleared
		w.msgs = nfnetlink.AppendAttr(w.msgs, cta.Status, binary.BigEndian.AppendUint32(nil, cta.Confirmed|cta.SeenReply))
	}
	w.msgs = nfnetlink.AppendAttr(w.msgs, cta.Timeout, binary.BigEndian.AppendUint32(nil, lifetime))
	if e.Zone != 0 {
		w.msgs = nfnetlink.AppendAttr(w.msgs, cta.Zone, binary.BigEndian.AppendUint16(nil, e.Zone))
	}
	if e.TCPState != 0 {
		w.msgs = nfnetlink.AppendAttr(w.msgs, nfnetlink.Nested|cta.ProtoInfo, ProtoInfo(e.TCPState))
	}
	nfnetlink.EndMessage(w.msgs, w.last)
	nfnetlink.SetSeq(w.msgs, w.last, w.seq)
}

// flush writes the batch. The kernel reports every error, but success only on
// request: here for the last message.
func (w *writer) flush() error {
	if w.count == 0 {
		return nil
	}
	const flagsAt = 6
	flags := binary.NativeEndian.Uint16(w.msgs[w.last+flagsAt:])
	binary.NativeEndian.PutUint16(w.msgs[w.last+flagsAt:], flags|unix.NLM_F_ACK)
	err := w.socket.Send(w.msgs)
	w.msgs, w.count = w.msgs[:0], 0
	for done := false; err == nil && !done; {
		err = w.socket.Receive(func(h nfnetlink.Header, payload []byte) error {
			done = h.Seq == w.seq
			return nfnetlink.AckError(h, payload)
		})
	}
	if err != nil {
		return fmt.Errorf("writing entries into the connection tracking table: %w", err)
	}
	return nil
}

// Tuple returns one direction of an entry, as the kernel encodes it.
func Tuple(src, dst netip.AddrPort, p model.Protocol) []byte {
	srcType, dstType := uint16(cta.IPv4Src), uint16(cta.IPv4Dst)
	if src.Addr().Is6() {
		srcType, dstType = cta.IPv6Src, cta.IPv6Dst
	}
	ip := nfnetlink.AppendAttr(nil, srcType, src.Addr().AsSlice())
	ip = nfnetlink.AppendAttr(ip, dstType, dst.Addr().AsSlice())
	proto := nfnetlink.AppendAttr(nil, cta.ProtoNum, []byte{byte(p)})
	proto = nfnetlink.AppendAttr(proto, cta.ProtoSrcPort, binary.BigEndian.AppendUint16(nil, src.Port()))
	proto = nfnetlink.AppendAttr(proto, cta.ProtoDstPort, binary.BigEndian.AppendUint16(nil, dst.Port()))
	b := nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.TupleIP, ip)
	return nfnetlink.AppendAttr(b, nfnetlink.Nested|cta.TupleProto, proto)
}

// ProtoInfo returns the state of a TCP connection, as the kernel encodes it.
func ProtoInfo(state uint8) []byte {
	tcp := nfnetlink.AppendAttr(nil, cta.ProtoInfoTCPState, []byte{state})
	return nfnetlink.AppendAttr(nil, nfnetlink.Nested|cta.ProtoInfoTCP, tcp)
}
