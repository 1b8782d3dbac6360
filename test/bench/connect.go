package main

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// These are bare system calls: any other work of client and server would hide the
// time that the rules take.

// serve accepts connections in the first pod of a lab, and closes them.
func serve(l *lab.Lab, at netip.AddrPort) (stop func(), err error) {
	pod, err := l.Host("pod1")
	if err != nil {
		return nil, err
	}
	var fd int
	err = pod.Do(func() (err error) {
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

// connect opens connections from the last pod, one after another, and returns their
// number per second.
func connect(r route) (float64, error) {
	pod, err := r.lab.Host("pod3")
	if err != nil {
		return 0, err
	}
	to, count := sockaddr(r.to), 0
	var took time.Duration
	err = pod.Do(func() error {
		begin := time.Now()
		for took = 0; took < rateTime; took = time.Since(begin) {
			if err := connectOnce(to); err != nil {
				return err
			}
			count++
		}
		return nil
	})
	return float64(count) / took.Seconds(), err
}

// connectOnce opens a connection and waits until the server closes it: in userspace mode
// the proxy accepts it first. It ends it by a reset, so that its port is free again.
func connectOnce(to unix.Sockaddr) error {
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

func untilClosed(fd int) error {
	_, err := unix.Read(fd, make([]byte, 1))
	return err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
