package direct

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// prober sends probes.
type prober struct {
	sockets map[netip.Addr]int // by source
}

// send sends the two probes to another node: one with a source that belongs to neither, and one that only
// shows whether it has the feature.
func (p *prober) send(self, to netip.Addr) error {
	return errors.Join(
		p.sendFrom(dataplane.ForeignSource(model.FamilyOf(to)), self, to, dataplane.ForeignProbe),
		p.sendFrom(self, self, to, dataplane.PlainProbe))
}

func (p *prober) sendFrom(source, self, to netip.Addr, kind byte) error {
	fd, err := p.socket(source)
	if err != nil {
		return err
	}
	at := sockaddr(netip.AddrPortFrom(to, dataplane.ProbePort))
	if err := unix.Sendto(fd, append(self.AsSlice(), kind), unix.MSG_DONTWAIT, at); err != nil {
		return fmt.Errorf("probing %s: %w", to, err)
	}
	return nil
}

// socket returns a socket with that source, which need not be an address of this node.
func (p *prober) socket(source netip.Addr) (int, error) {
	if fd, open := p.sockets[source]; open {
		return fd, nil
	}
	domain, level, option := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TRANSPARENT
	if source.Is6() {
		domain, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket for probes: %w", err)
	}
	err = unix.SetsockoptInt(fd, level, option, 1)
	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0)))
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("opening a socket for probes from %s: %w", source, err), unix.Close(fd))
	}
	if p.sockets == nil {
		p.sockets = map[netip.Addr]int{}
	}
	p.sockets[source] = fd
	return fd, nil
}

// close closes the sockets.
func (p *prober) close() {
	for _, fd := range p.sockets {
		_ = unix.Close(fd)
	}
	p.sockets = nil
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}
