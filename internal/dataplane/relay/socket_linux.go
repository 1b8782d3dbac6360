package relay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
)

// listenConfig sets options on sockets before they are bound.
func (s *server) listenConfig(silent bool) *net.ListenConfig {
	prepare := func(fd int) error {
		if s.Protocol == model.TCP {
			if err := resetAtExit(fd); err != nil { // what is accepted inherits it
				return err
			}
		}
		wantHops(fd, s.Address.Addr().Is6())
		if s.FreeBind {
			level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
			if s.Address.Addr().Is6() {
				level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
			}
			if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
				return fmt.Errorf("allow any address: %w", err)
			}
		}
		if s.Device != "" {
			if err := unix.BindToDevice(fd, s.Device); err != nil {
				return fmt.Errorf("bind to device %s: %w", s.Device, err)
			}
		}
		if silent {
			return mute(fd) // from the first packet on
		}
		return nil
	}
	l := &net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error { return control(socket, prepare) }}
	l.SetMultipathTCP(false) // connections to endpoints are not, either
	return l
}

// dialer returns one for sockets of a protocol, which are prepared by more functions.
func (o origin) dialer(p model.Protocol, endpoint netip.AddrPort, more ...func(fd int) error) net.Dialer {
	if p == model.TCP {
		more = append(more, resetAtExit)
	}
	if o.hops > 0 {
		more = append(more, limitHops(o.hops, endpoint.Addr().Is6()))
	}
	return net.Dialer{Control: func(_, _ string, socket syscall.RawConn) error {
		for _, prepare := range more {
			if err := control(socket, prepare); err != nil {
				return err
			}
		}
		return nil
	}}
}

// resetAtExit makes the kernel reset a connection that this process does not close in order.
func resetAtExit(fd int) error {
	err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return os.NewSyscallError("set SO_LINGER", err)
}

// over reports whether a connection is over: in order in both directions, or by a reset.
func over(c *net.TCPConn) bool {
	socket, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var info *unix.TCPInfo
	err = control(socket, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	return err != nil || info.State == stateClose
}

// stateClose is TCP_CLOSE of linux/tcp_states.h.
const stateClose = 7

// mute makes the kernel drop everything that arrives for a socket, by a BPF
// filter that accepts no byte.
func mute(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
}

func unmute(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

// withPacket waits for a packet, and only then borrows a buffer to read it
// into: thousands of idle sockets need none.
func withPacket(socket syscall.RawConn, read func(buffer []byte) error) error {
	var pending error
	err := socket.Read(func(fd uintptr) bool {
		pending = unix.EINTR
		for pending == unix.EINTR {
			_, _, pending = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		}
		return pending != unix.EAGAIN
	})
	if err != nil {
		return err
	}
	if pending != nil { // the kernel reports it only once
		return pending
	}
	buffer := buffers.Get().(*[maxPacket]byte)
	defer buffers.Put(buffer)
	return read(buffer[:])
}
