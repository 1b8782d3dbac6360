package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/netns"
	"sluice/internal/model"
)

// Router listens on an address to which the kernel leads connections of many frontends,
// and forwards each to an endpoint of the frontend that the client meant.
type Router struct {
	server
	directory Directory
	front     front
}

// Directory is what a Router asks for each connection.
type Directory struct {
	// Find returns the pool of an address that clients connect to; nil if there is
	// none, and the connection is reset.
	Find func(netip.AddrPort) *Pool
	// Source returns the address that an endpoint, which may be on this node, gets to
	// see. It is invalid for whichever of the node's the kernel chooses. With an address
	// the connection is left alone by the rules for new connections.
	Source func(client netip.Addr, endpoint netip.AddrPort, local bool) netip.Addr
	// Translation is where the kernel says which address a client connected to, and
	// where it is asked to let endpoints see the client's address.
	Translation *ctnetlink.Conn
}

// Listen returns a Router that listens. A port of 0 becomes a free one. When ctx ends,
// so do all connections.
func Listen(ctx context.Context, o Options, d Directory) (*Router, error) {
	o.setDefaults()
	r := &Router{directory: d}
	r.server = server{Options: o, paths: r, lifetime: ctx}
	err := netns.Do(o.NetNS, func() (err error) {
		r.front, err = r.open(false)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ListensOn returns the address with its port.
func (r *Router) ListensOn() netip.AddrPort { return r.front.address() }

// Close releases the address. TCP connections go on until they end by themselves or
// the context of Listen does.
func (r *Router) Close() { r.front.close() }

// Wait waits until all connections of a closed Router have ended.
func (r *Router) Wait() { r.running.Wait() }

func (r *Router) findTCP(client *net.TCPConn) *Pool {
	to, err := originalDestination(client)
	if err != nil {
		r.Logger.V(4).Info("Cannot find out where a connection was opened to", "client", client.RemoteAddr().String(), "err", err.Error())
		return nil
	}
	return r.directory.Find(to)
}

// originalDestination returns the address that a client connected to before its
// connection was led here.
func originalDestination(client *net.TCPConn) (to netip.AddrPort, err error) {
	socket, err := client.SyscallConn()
	if err != nil {
		return to, err
	}
	v6 := client.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Is6()
	err = control(socket, func(fd int) error {
		if v6 {
			// The structure begins with the address, and the kernel writes nothing else.
			info, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, unix.SO_ORIGINAL_DST)
			if err == nil {
				to = netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, info.Addr.Port)))
			}
			return err
		}
		// The kernel writes a sockaddr_in: family, port, address.
		raw, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if err == nil {
			b := raw.Multiaddr
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
		}
		return err
	})
	return to, err
}

func (r *Router) findUDP(client, at netip.AddrPort) *Pool {
	to, err := r.directory.Translation.OriginalDestination(ctnetlink.Flow{
		Protocol: model.UDP, From: client, To: at,
	})
	if err != nil {
		if !errors.Is(err, unix.ENOENT) { // it was not led here, or is forgotten already
			r.Logger.Error(err, "Cannot find out where a packet was sent to", "client", client.String())
		}
		return nil
	}
	return r.directory.Find(to)
}

// maxPorts is how many ports are tried for a connection with a source address.
const maxPorts = 16

func (r *Router) dialTCP(ctx context.Context, from origin, pool *Pool, endpoint netip.AddrPort) (*net.TCPConn, error) {
	dial := func(d net.Dialer) (conn *net.TCPConn, err error) {
		err = netns.Do(r.NetNS, func() error {
			conn, err = dialTCP(ctx, d, endpoint)
			return err
		})
		return conn, err
	}
	source := r.directory.Source(from.client, endpoint, pool.local(endpoint))
	if !source.IsValid() {
		return dial(from.dialer(model.TCP, endpoint))
	}
	conn, _, err := dialSpoofed(r, from, source, endpoint, dial)
	return conn, err
}

func (r *Router) dialUDP(from origin, pool *Pool, endpoint netip.AddrPort) (*net.UDPConn, *spoofedSource, error) {
	dial := func(d net.Dialer) (conn *net.UDPConn, err error) {
		err = netns.Do(r.NetNS, func() error {
			conn, err = dialUDP(d, endpoint)
			return err
		})
		return conn, err
	}
	source := r.directory.Source(from.client, endpoint, pool.local(endpoint))
	if !source.IsValid() {
		conn, err := dial(from.dialer(model.UDP, endpoint))
		return conn, nil, err
	}
	return dialSpoofed(r, from, source, endpoint, dial)
}

// spoofedSource lets the endpoint of a flow see another source address.
type spoofedSource struct {
	*Router
	flow   ctnetlink.Flow
	source netip.Addr
}

// spoofTimeout is how long the first packet may take.
const spoofTimeout = 30 * time.Second

func (d *spoofedSource) set() error {
	return d.directory.Translation.SetSource(d.flow, d.source, spoofTimeout)
}

// renew sets it again if the kernel may have forgotten it.
func (d *spoofedSource) renew() error {
	err := d.set()
	if errors.Is(err, unix.EEXIST) {
		return nil // it is still there
	}
	return err
}

// forget undoes it, because another socket may get the same port.
func (d *spoofedSource) forget() {
	if err := d.directory.Translation.Forget(d.flow); err != nil {
		d.Logger.V(2).Info("A flow with another source address is not forgotten", "err", err.Error())
	}
}

// dialSpoofed opens a connection with a source address, which need not be the node's. A port
// whose last connection the kernel still remembers is not used.
func dialSpoofed[C any](r *Router, from origin, source netip.Addr, endpoint netip.AddrPort, dial func(net.Dialer) (C, error)) (conn C, d *spoofedSource, err error) {
	bind := func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err // needed for more connections than there are ports
		}
		if err := unix.Bind(fd, sockaddr(r.Address.Addr())); err != nil {
			return err
		}
		bound, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		own := netip.AddrPortFrom(r.Address.Addr(), port(bound))
		attempt := &spoofedSource{r, ctnetlink.Flow{Protocol: r.Protocol, From: own, To: endpoint}, source}
		if err := attempt.set(); err != nil {
			return err
		}
		d = attempt
		return nil
	}
	for range maxPorts {
		d = nil
		conn, err = dial(from.dialer(r.Protocol, endpoint, bind))
		if err != nil && d != nil {
			d.forget()
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
	}
	return conn, d, err
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

func port(a unix.Sockaddr) uint16 {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port)
	case *unix.SockaddrInet6:
		return uint16(a.Port)
	}
	return 0
}
