package httpserver

import "net"

// Listener returns what listens on addresses of a machine that can do IPv6, or that
// can not. Package net takes the unspecified address of either family for all
// addresses of both, by a socket of IPv6: where there is no IPv6, it is a socket of
// IPv4.
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
