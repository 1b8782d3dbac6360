package relay

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenConfig sets options on sockets before they are bound.
func (s *server) listenConfig(silent bool) *net.ListenConfig {
	prepare := func(fd int) error {
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

func control(socket syscall.RawConn, act func(fd int) error) error {
	var result error
	if err := socket.Control(func(fd uintptr) { result = act(int(fd)) }); err != nil {
		return err
	}
	return result
}

// mute makes the kernel drop everything that arrives for a socket, by a BPF
// filter that accepts no byte.
func mute(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
}

func unmute(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}
