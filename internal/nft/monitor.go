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
	// Set is the set whose Elements came or went, Chain the chain whose rules did; both
	// are "" when something else changed: a table, a chain or a set as such.
	Set, Chain string
	// Elements are keys. They are f's only until it returns.
	Elements []Element
	// Generation ends the notices of a transaction: the number of the ruleset's version
	// that it made. It is 0 in all others.
	Generation uint32
	// Lost says that notices were lost because there were too many: anything
	// may have happened.
	Lost bool
}

// NewMonitor opens a monitor in a network namespace, as Dial does. It hears
// nothing before Join, and nothing of what is done through one connection, if one is
// given: ours.
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
		f(parseNotice(h.Type&0xff, payload))
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

func parseNotice(msg uint16, payload []byte) Notice {
	n := Notice{Family: Family(payload[0])}
	attrs := payload[nfnetlink.GenHeaderLen:]
	if msg == unix.NFT_MSG_NEWGEN {
		n.Generation = parseGeneration(attrs)
		return n
	}
	// The first attribute of every object is the name of its table.
	for typ, v := range nfnetlink.Attrs(attrs) {
		if typ == unix.NFTA_TABLE_NAME {
			n.Table = toText(v)
		}
		break
	}
	for typ, v := range nfnetlink.Attrs(attrs) {
		switch {
		case typ == unix.NFTA_SET_ELEM_LIST_SET && (msg == unix.NFT_MSG_NEWSETELEM || msg == unix.NFT_MSG_DELSETELEM):
			n.Set = toText(v)
		case typ == unix.NFTA_RULE_CHAIN && (msg == unix.NFT_MSG_NEWRULE || msg == unix.NFT_MSG_DELRULE):
			n.Chain = toText(v)
		}
	}
	if n.Set == "" {
		return n
	}
	err := elementReader(func(e *Element) error {
		n.Elements = append(n.Elements, Element{Key: e.Key})
		return nil
	})(attrs)
	if err != nil {
		n.Set, n.Elements = "", nil // something is not as it should be
	}
	return n
}
