package httpserver

import (
	"bytes"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// deferAccept has the kernel accept a connection when its request arrives: those that nobody
// uses, or that end at once, cost the process nothing. It is no loss where that is not possible.
func deferAccept(socket net.Listener) {
	if tcp, ok := socket.(*net.TCPListener); ok {
		control(tcp, func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, deferSeconds) })
	}
}

// hasRequest reports whether all of a request's header has arrived, without reading it.
func hasRequest(c net.Conn) (complete bool) {
	inner, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	control(inner, func(fd int) {
		head := make([]byte, 2048)
		n, _, err := unix.Recvfrom(fd, head, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		complete = err == nil && bytes.Contains(head[:n], []byte("\r\n\r\n"))
	})
	return complete
}

func control(c syscall.Conn, f func(fd int)) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // it is closed then
}
