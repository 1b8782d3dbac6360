package httpserver

import "net"

// Listener returns a function that listens on an address, with or without IPv6. Package
// net listens on an IPv6 socket for the unspecified address of either family; without
// IPv6 it must be an IPv4 socket.
func Listener(ipv6 bool) func(network, address string) (net.Listener, error) {
	if ipv6 {
		return net.Listen
	}
	return func(network, address string) (net.Listener, error) {
		at, err := net.ResolveTCPAddr(network, address)
		if err != nil {
			return nil, err
		}
		if at.IP.IsUnspecified() {
			return net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero, Port: at.Port})
		}
		return net.Listen(network, address)
	}
}
