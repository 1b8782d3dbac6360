//go:build linux

package nft

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Monitor receives notifications of changes by any program in the network namespace.
type Monitor struct {
	closed atomic.Bool
	socket *nfnetlink.Conn
}

// Notice is the notification of a change.
type Notice struct {
	Family Family
	Table  string
	// Set is the set whose Elements were added or removed, Chain the chain whose rules
	// were. Both are "" if a table, chain or set as such changed.
	Set, Chain string
	// Elements have only keys, which are valid until f returns.
	Elements []Element
	// Generation is set in the last notice of a transaction: the number of the
	// ruleset's version that it made.
	Generation uint32
	// Lost says that notices were lost because there were too many.
	Lost bool
}

// NewMonitor opens a monitor in a network namespace, as Dial does. It receives nothing
// before Join, and nothing caused by the connection ours, if that is not nil.
func NewMonitor(netns int, ours *Conn) (*Monitor, error) {
	socket, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	err = socket.ForceBuffers(SendBuffer, receiveBuffer)
	if ours != nil {
		err = errors.Join(err, socket.Ignore(ours.Port()))
	}
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &Monitor{socket: socket}, nil
}

// Ignore has the monitor receive nothing caused by some connections, instead of the one that it was made with.
func (m *Monitor) Ignore(ours ...*Conn) error {
	ports := make([]uint32, len(ours))
	for i, c := range ours {
		ports[i] = c.Port()
	}
	return m.socket.Ignore(ports...)
}

// Join starts to listen. While any program listens, the kernel sends a notification
// for every element of every transaction: leave while writing very many.
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
		f(parseNotice(h.Type&0xff, payload))
		return nil
	})
	switch {
	case errors.Is(err, unix.ENOBUFS):
		f(Notice{Lost: true})
		return nil
	case err != nil && m.closed.Load(): // the runtime has several errors for it
		return os.ErrClosed
	}
	return err
}

func parseNotice(msg uint16, payload []byte) Notice {
	n := Notice{Family: Family(payload[0])}
	body := attrs(payload[nfnetlink.GenHeaderLen:])
	if msg == unix.NFT_MSG_NEWGEN {
		n.Generation = body.getU32(unix.NFTA_GEN_ID)
		return n
	}
	n.Table = body.getText(unix.NFTA_TABLE_NAME) // the same number for all objects
	switch msg {
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		n.Set = body.getText(unix.NFTA_SET_ELEM_LIST_SET)
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		n.Chain = body.getText(unix.NFTA_RULE_CHAIN)
	}
	if n.Set == "" {
		return n
	}
	err := elementReader(func(e *Element) error {
		n.Elements = append(n.Elements, Element{Key: e.Key})
		return nil
	})(body)
	if err != nil {
		n.Set, n.Elements = "", nil // malformed
	}
	return n
}
