package instancelock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// socketNames is the number of socket names that can hold the lock. Any
// unprivileged process in the network namespace can bind them, so only a holder
// that is root or our own user counts, and a name bound by another process is
// skipped.
const socketNames = 8

// socketAddr returns an abstract socket address: it belongs to the network
// namespace, as the rules do, and the kernel releases it when its holder dies.
func (n Name) socketAddr(i int) *net.UnixAddr {
	name := "@sluice/kube-proxy"
	if i > 0 {
		name = fmt.Sprintf("%s-%d", name, i)
	}
	if n != "" {
		name += "." + string(n)
	}
	return &net.UnixAddr{Name: name, Net: "unix"}
}

// crowdedRemedy is what to do if unrelated processes have all names.
const crowdedRemedy = "see who it is: ss -xlp | grep sluice"

// listen binds the lowest name that is free. There is no listener if none is.
func (n Name) listen() (listener *net.UnixListener, name int, err error) {
	for i := range socketNames {
		listener, err := net.ListenUnix("unix", n.socketAddr(i))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		return listener, i, err
	}
	return nil, 0, nil
}

// strangerPause bounds what a flood of connections costs. Where the sockets are the lock,
// those who wait come first.
const strangerPause = 10 * time.Millisecond

// answer accepts connections, so that waiting processes can read the holder's
// credentials. Nothing is sent.
func (l *Lock) answer() {
	for {
		conn, err := l.listener.AcceptUnix()
		if err != nil {
			return
		}
		peer := proxyOf(conn)
		conn.Close()
		switch {
		case peer != nil:
			l.asked(*peer)
		case l.group != nil:
			time.Sleep(strangerPause)
		}
	}
}

// proxyAtAny returns the process that holds one of the names, nil if no proxy does.
func (n Name) proxyAtAny() *Holder {
	for i := range socketNames {
		if holder := n.proxyAt(i); holder != nil {
			return holder
		}
	}
	return nil
}

// proxyAt returns the process that holds a name, nil if there is none or it is
// an unrelated one.
func (n Name) proxyAt(i int) (holder *Holder) {
	conn, err := net.DialUnix("unix", nil, n.socketAddr(i))
	if err != nil {
		return nil
	}
	defer conn.Close()
	return proxyOf(conn)
}

// proxyOf returns the process at the other end of a connection, nil if it is an unrelated one.
func proxyOf(conn *net.UnixConn) (peer *Holder) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid()) {
			pid := Holder(cred.Pid)
			peer = &pid
		}
	})
	return peer
}
