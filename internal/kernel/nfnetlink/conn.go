//go:build linux

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// readSize is more than the length of any datagram of the kernel.
const readSize = 1 << 16

// Conn is a netlink socket, either for requests (Do, Dump, Batch), of which it handles one
// at a time, or for notifications (Join, Receive), which one goroutine receives. Its methods
// may be called concurrently.
type Conn struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	buf []byte

	mu  sync.Mutex // held from a request to the end of its answer
	seq uint32     // of the last request
	// dump is the last one. Until it is read to its end, the kernel refuses others.
	dump *answer
	// deadlineSet is when the read deadline was set.
	deadlineSet time.Time
}

// Dial opens a socket to netfilter in a network namespace, given as an open file
// descriptor; 0 is the caller's own.
func Dial(netns int) (*Conn, error) { return dial(unix.NETLINK_NETFILTER, netns) }

// DialGeneric does the same for generic netlink.
func DialGeneric(netns int) (*Conn, error) { return dial(unix.NETLINK_GENERIC, netns) }

// DialRoute does the same for routing.
func DialRoute(netns int) (*Conn, error) { return dial(unix.NETLINK_ROUTE, netns) }

func dial(protocol, netns int) (*Conn, error) {
	nl, err := netlink.Dial(protocol, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	c := &Conn{nl: nl, buf: make([]byte, readSize)}
	if c.raw, err = nl.SyscallConn(); err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	for _, o := range []netlink.ConnOption{netlink.ExtendedAcknowledge, netlink.CapAcknowledge} {
		if err := nl.SetOption(o, true); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up netlink acknowledgements: %w", err), nl.Close())
		}
	}
	return c, nil
}

// ForceBuffers requests buffers of that many bytes. Without CAP_NET_ADMIN in the
// initial user namespace the kernel limits them.
func (c *Conn) ForceBuffers(send, receive int) error {
	var err error
	set := func(fd, force, plain, size int) {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size))
		}
	}
	cerr := c.raw.Control(func(fd uintptr) {
		set(int(fd), unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send)
		set(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive)
	})
	if err := errors.Join(err, cerr); err != nil {
		return fmt.Errorf("sizing netlink buffers: %w", err)
	}
	return nil
}

// Port is the netlink port, which notifications have of what this socket caused.
func (c *Conn) Port() uint32 { return c.nl.PID() }

// Share has processes that this one starts from now on keep the socket open.
func (c *Conn) Share() error {
	var err error
	cerr := c.raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETFD, 0) })
	return errors.Join(cerr, err)
}

// Join starts to listen to a multicast group.
func (c *Conn) Join(group uint32) error { return c.nl.JoinGroup(group) }

// Leave stops to listen to a multicast group.
func (c *Conn) Leave(group uint32) error { return c.nl.LeaveGroup(group) }

// Ignore drops messages that some ports caused before they take space in the buffer, and only those.
func (c *Conn) Ignore(ports ...uint32) error {
	const portAt = 12 // in struct nlmsghdr; the load is big-endian, the header is not
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt}}
	for i, port := range ports {
		var native [4]byte
		binary.NativeEndian.PutUint32(native[:], port)
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			K: binary.BigEndian.Uint32(native[:]), Jt: uint8(len(ports) - i)})
	}
	return c.attach(append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	))
}

// RequireClear drops messages in which a 32-bit attribute has one of some bits set, before they
// take space in the buffer. Messages without the attribute are dropped too.
func (c *Conn) RequireClear(attr uint16, bits uint32) error {
	const find = 0xfffff000 + 12 // SKF_AD_OFF + SKF_AD_NLATTR: the offset of an attribute, 0 if there is none
	return c.attach([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_IMM, K: HeaderLen + GenHeaderLen},
		{Code: unix.BPF_LDX | unix.BPF_IMM, K: uint32(attr)},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: find},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 3, Jf: 0},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: AttrHeaderLen},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	})
}

// attach makes a filter decide which messages arrive.
func (c *Conn) attach(program []unix.SockFilter) error {
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	var err error
	cerr := c.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
	})
	if err := errors.Join(err, cerr); err != nil {
		return fmt.Errorf("filtering netlink notifications: %w", err)
	}
	return nil
}

// SendBuffer returns the maximum length of what is sent at once.
func (c *Conn) SendBuffer() (int, error) {
	var size int
	var err error
	cerr := c.raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF) })
	if err := errors.Join(err, cerr); err != nil {
		return 0, fmt.Errorf("reading the size of the netlink buffer: %w", err)
	}
	return size - sendReserve, nil
}

// sendReserve is the part of the buffer that the kernel reserves.
const sendReserve = 32

// Close closes the socket. A Receive that waits returns an error.
func (c *Conn) Close() error { return c.nl.Close() }

// send sends messages in one datagram.
func (c *Conn) send(b []byte) error {
	var err error
	werr := c.raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(werr, err)
}

// Receive reads one datagram and calls f for each message in it. Messages are valid
// until the next Receive.
func (c *Conn) Receive(f func(Header, []byte) error) error {
	var n int
	var err error
	rerr := c.raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), c.buf)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err := errors.Join(rerr, err); err != nil {
		return err
	}
	return EachMessage(c.buf[:n], f)
}
