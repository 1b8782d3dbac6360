//go:build linux

package lab_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// e2e Conntrack: proxy implementation should not be vulnerable to the invalid
// conntrack state bug. A server sends segments that are far outside the window.
// If connection tracking had no connection for them, they would reach the client
// from an address that it does not know, and the client would reset the server.
//
// Kernels since 6.1 accept late retransmissions, which are behind the window.
// Segments ahead of it need a liberal kernel, or the rule of iptables mode that
// drops them.
func TestOutOfWindowSegmentsDoNotReset(t *testing.T) {
	t.Parallel()
	const behind, ahead = 3 << 30, 1 << 30
	tests := []struct {
		name    string
		flags   []string
		offsets []uint32
	}{
		{"nftables mode", nil, []uint32{behind}},
		{"iptables mode", []string{"--proxy-mode=iptables"}, []uint32{behind, ahead}},
		{"nftables mode, liberal", []string{"--conntrack-tcp-be-liberal"}, []uint32{behind, ahead}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			dir := t.TempDir()
			write(t, dir, "good.yaml", goodManifests, 0)
			p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: tt.flags})
			settle(t, p, dir, 0)
			for _, offset := range tt.offsets {
				for _, client := range []string{"pod3", "client"} {
					if err := survives(t, l, client, offset); err != nil {
						t.Errorf("%s, offset %x: %v", client, offset, err)
					}
				}
			}
		})
	}
}

// survives makes the server of a connection send a segment that far from the next
// one, and returns what happens to the connection.
func survives(t *testing.T, l *lab.Lab, client string, offset uint32) error {
	t.Helper()
	pod, err := l.Host("pod1")
	if err != nil {
		return err
	}
	s, err := l.Open(lab.Flow{From: client, Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")})
	if err != nil {
		return err
	}
	defer s.Close()
	tap := newSegments(t, pod)
	a, err := s.Ask()
	if err != nil {
		return err
	}
	server := netip.AddrPortFrom(pod.Addrs[0], a.Port)
	seq, ack := tap.numbers(a.Source, server)
	tap.send(server, a.Source, seq+offset, ack)
	for range 3 {
		if _, err := s.Ask(); err != nil {
			return err
		}
	}
	return nil
}

// segments sends TCP segments of a host, and captures those that it receives, over
// IPv4.
type segments struct {
	t  *testing.T
	fd int
}

func newSegments(t *testing.T, h *lab.Host) *segments {
	t.Helper()
	s := &segments{t: t}
	err := h.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

// numbers returns the next sequence numbers of the server, from the last segment
// with data of a client.
func (s *segments) numbers(client, server netip.AddrPort) (seq, ack uint32) {
	s.t.Helper()
	buf := make([]byte, 1<<16)
	for found := false; ; {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil && found {
			return seq, ack
		}
		if err != nil {
			s.t.Fatalf("no segment of %v was seen: %v", client, err)
		}
		tcp := buf[int(buf[0]&0xf)*4 : n]
		from, to := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
		content := tcp[int(tcp[12]>>4)*4:]
		if from != client.Port() || to != server.Port() || len(content) == 0 {
			continue
		}
		found = true
		ack = binary.BigEndian.Uint32(tcp[4:]) + uint32(len(content))
		seq = binary.BigEndian.Uint32(tcp[8:])
	}
}

// send sends a segment with one byte in it.
func (s *segments) send(from, to netip.AddrPort, seq, ack uint32) {
	s.t.Helper()
	const pshAck, headerWords = 0x18, 5
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, headerWords<<4, pshAck, 0xff, 0xff, 0, 0, 0, 0, '!')
	binary.BigEndian.PutUint16(b[16:], checksum(from.Addr(), to.Addr(), b))
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		s.t.Fatal(fmt.Errorf("send a segment: %w", err))
	}
}

// checksum is that of TCP over IPv4.
func checksum(from, to netip.Addr, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + len(segment))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), segment} {
		for i, c := range part {
			sum += uint32(c) << (8 * (1 - i%2))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
