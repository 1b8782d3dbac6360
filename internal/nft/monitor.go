package nft

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice/internal/nfnetlink"
)

// Monitor hears of the changes that anybody in the namespace makes.
type Monitor struct {
	closed atomic.Bool
	socket *nfnetlink.Socket
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
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	if err := socket.ForceBuffers(sendBuffer, receiveBuffer); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &Monitor{socket: socket}, nil
}

// Join starts to listen. While anybody listens, the kernel makes a notice of
// every element of every transaction: leave while writing very many.
func (m *Monitor) Join() error { return m.socket.Join(unix.NFNLGRP_NFTABLES) }

// Leave stops to listen.
func (m *Monitor) Leave() error { return m.socket.Leave(unix.NFNLGRP_NFTABLES) }

// Close ends a Next that is waiting.
func (m *Monitor) Close() error {
	m.closed.Store(true)
	return m.socket.Close()
}

// Next waits for notices and calls f for each. It returns os.ErrClosed after
// Close.
func (m *Monitor) Next(f func(Notice)) error {
	err := m.socket.Receive(func(h nfnetlink.Header, payload []byte) error {
		if h.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(payload) < nfnetlink.GenHeaderLen {
			return nil
		}
		if msg := h.Type & 0xff; msg == unix.NFT_MSG_NEWGEN {
			return nil
		}
		n := Notice{Family: Family(payload[0]), Port: h.Port}
		// The first attribute of every object is the name of its table.
		for typ, v := range nfnetlink.Attrs(payload[nfnetlink.GenHeaderLen:]) {
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
	case err != nil && m.closed.Load(): // whatever words the runtime has for it
		return os.ErrClosed
	}
	return err
}
