package relay

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"
)

// wantHops has the kernel tell how many hops packets have left. Where it does not, rings of
// relays end for want of files only.
func wantHops(fd int, v6 bool) {
	level, option := unix.IPPROTO_IP, unix.IP_RECVTTL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT
	}
	_ = unix.SetsockoptInt(fd, level, option, 1)
}

// hopsOf returns how many hops a client had left when it connected, 0 if that is not known.
func hopsOf(client *net.TCPConn) (hops int) {
	socket, err := client.SyscallConn()
	if err != nil {
		return 0
	}
	v6 := client.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Is6()
	_ = control(socket, func(fd int) error {
		level, option := unix.IPPROTO_IP, unix.IP_PKTOPTIONS
		if v6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_2292PKTOPTIONS
			// Else the kernel looks at each packet.
			defer func() { _ = unix.SetsockoptInt(fd, level, unix.IPV6_RECVHOPLIMIT, 0) }()
		}
		// The kernel writes one control message, which is as long as this structure or shorter.
		raw, err := unix.GetsockoptIPv6Mreq(fd, level, option)
		if err != nil {
			return err
		}
		hops = hopsIn(binary.NativeEndian.AppendUint32(raw.Multiaddr[:], raw.Interface))
		return nil
	})
	return hops
}

// hopsIn returns how many hops a packet had left according to its control messages, 0 if they
// do not say.
func hopsIn(messages []byte) int {
	header, data, _, err := unix.ParseOneSocketControlMessage(messages)
	if err != nil || len(data) < 4 {
		return 0
	}
	if v4, v6 := header.Level == unix.IPPROTO_IP && header.Type == unix.IP_TTL,
		header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_HOPLIMIT; !v4 && !v6 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(data))
}

// limitHops returns what limits the hops of the packets of a socket.
func limitHops(hops int, v6 bool) func(fd int) error {
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	return func(fd int) error { return unix.SetsockoptInt(fd, level, option, hops) }
}
