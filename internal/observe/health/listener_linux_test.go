package health

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIPv6SocketsLeaveIPv4Alone(t *testing.T) {
	socket, err := listenOn(netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	raw, err := socket.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	only := 0
	var failure error
	if err := raw.Control(func(fd uintptr) {
		only, failure = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if only != 1 {
		t.Error("IPV6_V6ONLY is not set")
	}
}
