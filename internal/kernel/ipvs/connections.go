//go:build linux

package ipvs

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const connectionsFile = "/proc/thread-self/net/ip_vs_conn"

// Connection is a connection to a virtual service.
type Connection struct {
	Client   netip.AddrPort
	Service  Key
	Endpoint netip.AddrPort
}

// Connections reads the connections that IPVS knows in the network namespace of the thread.
func Connections() ([]Connection, error) {
	f, err := os.Open(connectionsFile)
	if err != nil {
		return nil, fmt.Errorf("reading the connections of IPVS: %w", err)
	}
	defer f.Close()
	list, err := parseConnections(f)
	if err != nil {
		return nil, fmt.Errorf("reading the connections of IPVS: %w", err)
	}
	return list, nil
}

// parseConnections parses the kernel's list. It leaves out what it does not know, and
// the entries of persistence, which have no client port.
func parseConnections(r io.Reader) (list []Connection, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 7 {
			continue
		}
		protocol := connectionProtocols[fields[0]]
		client, ok := parseEnd(fields[1], fields[2])
		service, ok2 := parseEnd(fields[3], fields[4])
		endpoint, ok3 := parseEnd(fields[5], fields[6])
		if protocol == 0 || !ok || !ok2 || !ok3 || client.Port() == 0 {
			continue
		}
		key := Key{Addr: service.Addr(), Port: service.Port(), Protocol: protocol}
		list = append(list, Connection{client, key, endpoint})
	}
	return list, lines.Err()
}

var connectionProtocols = map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}

// parseEnd parses an address, of IPv4 in hexadecimal digits, and a port in such digits.
func parseEnd(addr, port string) (netip.AddrPort, bool) {
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		n, err := strconv.ParseUint(addr, 16, 32)
		if err != nil || len(addr) != 8 {
			return netip.AddrPort{}, false
		}
		ip = netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return netip.AddrPortFrom(ip, uint16(p)), true
}
