package lab

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// witness records which packets reach the world.
type witness struct {
	file  *os.File
	mutex sync.Mutex
	seen  map[capture]struct{}
}

// capture is a packet that a host sent to an address that no host has.
type capture struct {
	protocol Protocol
	from, to netip.AddrPort
}

// startWitness has the world remember what reaches it.
func (l *Lab) startWitness() error {
	world := l.hosts["world"]
	bridge, err := world.links.LinkByName("wire")
	if err != nil {
		return err
	}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
	file, err := world.socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0, func(fd int) error {
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: bridge.Attrs().Index})
	})
	if err != nil {
		return err
	}
	l.world = &witness{file: file, seen: map[capture]struct{}{}}
	l.onClose(file.Close)
	go l.world.watch()
	return nil
}

func (w *witness) watch() {
	buffer := make([]byte, 2048)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		if s, ok := parseCapture(buffer[:n]); ok {
			w.mutex.Lock()
			w.seen[s] = struct{}{}
			w.mutex.Unlock()
		}
	}
}

func (w *witness) saw(s capture) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	_, ok := w.seen[s]
	return ok
}

// parseCapture reads the headers of an IP packet.
func parseCapture(b []byte) (capture, bool) {
	if len(b) == 0 {
		return capture{}, false
	}
	var from, to netip.Addr
	var protocol byte
	switch {
	case b[0]>>4 == 4 && len(b) >= 24:
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		protocol, b = b[9], b[min(len(b)-4, int(b[0]&15)*4):]
	case b[0]>>4 == 6 && len(b) >= 44:
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		protocol, b = b[6], b[40:]
	default:
		return capture{}, false
	}
	names := map[byte]Protocol{unix.IPPROTO_TCP: TCP, unix.IPPROTO_UDP: UDP, unix.IPPROTO_SCTP: SCTP}
	name, ok := names[protocol]
	return capture{
		protocol: name,
		from:     netip.AddrPortFrom(from, binary.BigEndian.Uint16(b)),
		to:       netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[2:])),
	}, ok
}
