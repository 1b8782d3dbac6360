//go:build linux

package lab

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// startEcho starts the echo servers of all pods and nodes.
func (l *Lab) startEcho() error {
	for _, h := range l.order {
		if h.Node == "" {
			continue
		}
		if err := l.startEchoOn(h); err != nil {
			return fmt.Errorf("start echo server on %s: %w", h.Name, err)
		}
	}
	return nil
}

func (l *Lab) startEchoOn(h *Host) error {
	var at []netip.AddrPort
	for _, a := range h.Addrs {
		for _, port := range EchoPorts {
			at = append(at, netip.AddrPortFrom(a, port))
		}
	}
	if !h.isPod() {
		for _, a := range addresses("127.0.0.1", "::1") {
			at = append(at, netip.AddrPortFrom(a, LoopbackPort))
		}
	}
	for _, a := range at {
		if err := l.listenTCP(h, a); err != nil {
			return err
		}
		if err := l.listenUDP(h, a); err != nil {
			return err
		}
	}
	// Without an answer of our own, a host would be silent on SCTP for which
	// the kernel has a raw socket but no protocol.
	for _, a := range append(h.Addrs[:], h.Spare...) {
		if err := l.listenSCTP(h, a); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) listenTCP(h *Host, at netip.AddrPort) error {
	file, err := h.socket(domainOf(at.Addr()), unix.SOCK_STREAM, 0, func(fd int) error {
		if err := bind(fd, at); err != nil {
			return err
		}
		return unix.Listen(fd, 4096)
	})
	if err != nil {
		return err
	}
	listener, err := net.FileListener(file)
	file.Close() // the listener has a copy
	if err != nil {
		return err
	}
	l.onClose(listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveTCP(h, at.Port(), conn)
		}
	}()
	return nil
}

// serveTCP answers every line, until the client disconnects.
func serveTCP(h *Host, port uint16, conn net.Conn) {
	defer conn.Close()
	source := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	answer := Answer{By: h.Name, Port: port, Source: unmap(source)}.line()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}

func (l *Lab) listenUDP(h *Host, at netip.AddrPort) error {
	file, err := h.socket(domainOf(at.Addr()), unix.SOCK_DGRAM, 0, func(fd int) error { return bind(fd, at) })
	if err != nil {
		return err
	}
	packets, err := net.FilePacketConn(file)
	file.Close() // packets has a copy
	if err != nil {
		return err
	}
	l.onClose(packets.Close)
	go serveUDP(h, at.Port(), packets.(*net.UDPConn))
	return nil
}

// serveUDP answers every datagram, and repeats what it answers. An answer that cannot be
// sent counts as lost.
func serveUDP(h *Host, port uint16, conn *net.UDPConn) {
	buffer := make([]byte, 512)
	for {
		n, source, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		answer := Answer{By: h.Name, Port: port, Source: unmap(source)}
		_, _ = conn.WriteToUDPAddrPort(append([]byte(answer.line()), buffer[:n]...), source)
	}
}

// bind gives a socket its local address.
func bind(fd int, at netip.AddrPort) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return fmt.Errorf("bind to %v: %w", at, err)
	}
	return nil
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}

func domainOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
