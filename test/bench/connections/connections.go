//go:build linux

// Package connections measures how many TCP connections per second can be opened, with
// bare system calls: any other work of client and server would hide the time that the
// rules take.
package connections

import (
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// Serve accepts connections at an address of a host, and closes them.
func Serve(host *lab.Host, at netip.AddrPort) (stop func(), err error) {
	var fd int
	err = host.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, sockaddr(at)), unix.Listen(fd, 4096))
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			switch {
			case err == nil:
				unix.Close(conn)
			case errors.Is(err, unix.EINVAL): // shut down
				return
			}
		}
	}()
	return func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		<-ended
		unix.Close(fd)
	}, nil
}

// Open opens connections from a host, one after another for a time, and returns their
// number per second.
func Open(host *lab.Host, to netip.AddrPort, duration time.Duration) (float64, error) {
	address, count := sockaddr(to), 0
	var took time.Duration
	err := host.Do(func() error {
		begin := time.Now()
		for took = 0; took < duration; took = time.Since(begin) {
			if err := openOnce(address); err != nil {
				return err
			}
			count++
		}
		return nil
	})
	return float64(count) / took.Seconds(), err
}

// openOnce opens a connection and waits until the server closes it: in userspace mode
// the proxy accepts it first. It ends it by a reset, so that its port is free again.
func openOnce(to unix.Sockaddr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 2), // not for minutes
		unix.Connect(fd, to),
		untilClosed(fd))
}

// Forget clears the connection tracking table of a host. Otherwise rounds would pay for
// earlier ones: there are so many connections that ports are reused while the kernel
// still knows the previous connection, which it has to end first.
func Forget(host *lab.Host) error {
	return host.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

func untilClosed(fd int) error {
	_, err := unix.Read(fd, make([]byte, 1))
	return err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
