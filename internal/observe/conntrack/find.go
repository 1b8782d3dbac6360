package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
)

// Find returns the connection of a client to an address in a network namespace, given as in
// Options, and whether there is one. It may be one whose destination was not translated.
func Find(netns int, p model.Protocol, client, to netip.AddrPort) (c Connection, found bool, err error) {
	conn, err := ctnetlink.Dial(netns)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	entry, err := conn.Find(ctnetlink.Flow{Protocol: p, From: client, To: to})
	switch {
	case errors.Is(err, unix.ENOENT):
		return c, false, nil
	case err != nil:
		return c, false, fmt.Errorf("reading a connection tracking entry: %w", err)
	}
	return (&flow{entry}).connection(), true, nil
}
