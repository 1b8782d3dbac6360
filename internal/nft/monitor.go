package nft

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Monitor hears of the changes that anybody in the namespace makes.
type Monitor struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	buf []byte
}

// Notice is a change that somebody made.
type Notice struct {
	Family Family
	Table  string
	// Port names the socket it was made through.
	Port uint32
	// Lost says that notices were lost because there were too many: anything
	// may have happened.
	Lost bool
}

// NewMonitor opens a monitor in a network namespace, as Dial does. It hears
// nothing before Join.
func NewMonitor(netns int) (*Monitor, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for nftables notifications: %w", err)
	}
	m := &Monitor{nl: nl, buf: make([]byte, readSize)}
	if m.raw, err = nl.SyscallConn(); err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	if err := forceBuffers(m.raw); err != nil {
		return nil, errors.Join(fmt.Errorf("sizing netlink buffers: %w", err), nl.Close())
	}
	return m, nil
}

// Join starts to listen. While anybody listens, the kernel makes a notice of
// every element of every transaction: leave while writing very many.
func (m *Monitor) Join() error { return m.nl.JoinGroup(unix.NFNLGRP_NFTABLES) }

// Leave stops to listen.
func (m *Monitor) Leave() error { return m.nl.LeaveGroup(unix.NFNLGRP_NFTABLES) }

// Close ends a Next that is waiting.
func (m *Monitor) Close() error { return m.nl.Close() }

// Next waits for notices and calls f for each. It returns os.ErrClosed after
// Close.
func (m *Monitor) Next(f func(Notice)) error {
	err := receive(m.raw, m.buf, func(h header, payload []byte) error {
		if h.typ>>8 != unix.NFNL_SUBSYS_NFTABLES || len(payload) < genHeader {
			return nil
		}
		if msg := h.typ & 0xff; msg == unix.NFT_MSG_NEWGEN {
			return nil
		}
		n := Notice{Family: Family(payload[0]), Port: h.port}
		// The first attribute of every object is the name of its table.
		for typ, v := range each(payload[genHeader:]) {
			if typ == unix.NFTA_TABLE_NAME {
				n.Table = toText(v)
			}
			break
		}
		f(n)
		return nil
	})
	switch {
	case errors.Is(err, unix.ENOBUFS):
		f(Notice{Lost: true})
		return nil
	case errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF):
		return os.ErrClosed
	}
	return err
}
