package conntrack

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// message is one of the kernel's, with this behind its netlink header.
func message(typ uint16, seq uint32, payload []byte) []byte {
	b := nfnetlink.AppendHeader(nil, typ, 0, 0, 0)[:nfnetlink.HeaderLen]
	b = append(b, payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	nfnetlink.EndMessage(b, 0)
	nfnetlink.SetSeq(b, 0, seq)
	return b
}

// acknowledgement says that a request succeeded, or why it did not.
func acknowledgement(seq uint32, errno unix.Errno) []byte {
	payload := binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
	return message(unix.NLMSG_ERROR, seq, append(payload, make([]byte, nfnetlink.HeaderLen)...))
}

// FuzzAnswers feeds possible answers of the kernel to a dump and to
// deletions.
func FuzzAnswers(f *testing.F) {
	const seq = 7
	entry := append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, encodeEntry("10.0.0.1:4000", web, old, model.UDP)...)
	dump := message(getEntry, seq, entry)
	f.Add(append(dump, message(unix.NLMSG_DONE, seq, make([]byte, 4))...))
	f.Add(append(dump, message(unix.NLMSG_DONE, seq, []byte{0xff, 0xff, 0xff, 0xff})...))
	f.Add(append(dump, message(unix.NLMSG_DONE, seq, nil)...))
	f.Add(dump[:len(dump)-5])
	f.Add(message(getEntry, seq, []byte{unix.NFPROTO_IPV6}))
	f.Add(message(getEntry, seq+1, entry))
	f.Add(acknowledgement(seq, 0))
	f.Add(acknowledgement(seq, unix.ENOENT))
	f.Add(acknowledgement(seq, 1<<31))
	f.Add(acknowledgement(seq+1, unix.EBUSY))
	f.Add(message(unix.NLMSG_ERROR, seq, nil))
	f.Add(message(unix.NLMSG_ERROR, seq, make([]byte, 8)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := sweeper{seq: seq, stale: func(*flow) bool { return true }}
		messages := 0
		_ = nfnetlink.EachMessage(b, func(h nfnetlink.Header, payload []byte) error {
			messages++
			s.deletions = deletions{} // nothing is ever sent
			return s.answer(model.UDP, h, payload)
		})
		if s.seen > messages {
			t.Errorf("%d entries in %d messages", s.seen, messages)
		}
		d := deletions{first: seq - 1, seq: seq, open: 2}
		_ = nfnetlink.EachMessage(b, d.answer)
		if d.deleted < 0 || d.deleted > 2-d.open {
			t.Errorf("%d deleted, with %d answers missing", d.deleted, d.open)
		}
	})
}
