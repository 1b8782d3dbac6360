package httpserver

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestListenWithoutIPv6(t *testing.T) {
	tests := []struct {
		name, address string
		ipv6          bool
		want          int
	}{
		{"all addresses, by the word of IPv4", "0.0.0.0:0", false, unix.AF_INET},
		{"all addresses, by the word of IPv6", "[::]:0", false, unix.AF_INET},
		{"one address", "127.0.0.1:0", false, unix.AF_INET},
		{"all addresses of both families", "0.0.0.0:0", true, unix.AF_INET6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket, err := Listener(tt.ipv6)("tcp", tt.address)
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			raw, err := socket.(*net.TCPListener).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var domain int
			if cerr := raw.Control(func(fd uintptr) { domain, err = unix.GetsockoptInt(int(fd), syscall.SOL_SOCKET, unix.SO_DOMAIN) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			if domain != tt.want {
				t.Errorf("the socket is of family %d, want %d", domain, tt.want)
			}
		})
	}
}

func TestListenOnIPv6FailsWithoutIPv6(t *testing.T) {
	if _, err := Listener(false)("tcp", "[2001:db8::99]:0"); err == nil {
		t.Error("it listens on an address that the machine does not have")
	}
}
