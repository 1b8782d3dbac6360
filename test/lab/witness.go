//go:build linux

package lab

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// witness reports which packets reach the world.
type witness struct {
	file     *os.File
	mutex    sync.Mutex
	expected map[capture]chan struct{} // closed when they are seen

	// A client sends markers to the world, each to another port, to learn when the lab
	// has caught up with what was sent before.
	client *net.UDPConn
	marker capture // the last one
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
	l.world = &witness{file: file, expected: map[capture]chan struct{}{}}
	l.onClose(file.Close)
	if err := l.world.addClient(l.hosts["client"], world); err != nil {
		return err
	}
	l.onClose(l.world.client.Close)
	go l.world.watch()
	return nil
}

// addClient opens the socket that markers are sent from.
func (w *witness) addClient(client, world *Host) error {
	err := client.Do(func() (err error) {
		w.client, err = net.ListenUDP("udp4", &net.UDPAddr{IP: client.Addrs[v4].AsSlice()})
		return err
	})
	if err != nil {
		return err
	}
	w.marker = capture{UDP, w.client.LocalAddr().(*net.UDPAddr).AddrPort(), netip.AddrPortFrom(world.Addrs[v4], 0)}
	return nil
}

// markerPause is the time after which a marker counts as lost.
const markerPause = 50 * time.Millisecond

// catchUp waits until the witness has seen a packet that is sent now. A machine that is
// behind with other packets and processes of the lab is behind with this one, too.
func (w *witness) catchUp() {
	marker := w.nextMarker()
	seen := w.expect(marker)
	defer w.forget(marker)
	for end := testkit.Deadline(DefaultTimeout); time.Now().Before(end); {
		if _, err := w.client.WriteToUDPAddrPort(nil, marker.to); err != nil {
			return // the lab is closed, or a test took the client's network away
		}
		select {
		case <-seen:
			return
		case <-time.After(markerPause):
		}
	}
}

func (w *witness) nextMarker() capture {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.marker.to = netip.AddrPortFrom(w.marker.to.Addr(), max(1, w.marker.to.Port()+1))
	return w.marker
}

// expect returns a channel that is closed when a packet is seen.
func (w *witness) expect(c capture) <-chan struct{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	seen := make(chan struct{})
	w.expected[c] = seen
	return seen
}

// forget ends expect.
func (w *witness) forget(c capture) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.expected, c)
}

func (w *witness) watch() {
	buffer := make([]byte, 2048)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		if c, ok := parseCapture(buffer[:n]); ok {
			w.saw(c)
		}
	}
}

func (w *witness) saw(c capture) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if seen, ok := w.expected[c]; ok {
		close(seen)
		delete(w.expected, c)
	}
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
