//go:build linux

package neighbour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/notify"
)

// MAC is the address of an interface on its link; zero if it is not known.
type MAC = [6]byte

// Table mirrors the kernel's table of neighbours.
type Table struct {
	// Changed receives when a neighbour, a route, an address or an interface changed.
	Changed notify.Signal
	// Ready is closed when it is known who is there.
	Ready chan struct{}

	mu      sync.Mutex
	entries map[at]entry
	routes  uint64 // how often something changed besides neighbours
	ready   sync.Once
}

type at struct {
	link int
	addr netip.Addr
}

// entry is the last address of a neighbour. The kernel forgets neighbours that nobody asks for, which says
// nothing about them.
type entry struct {
	mac    MAC
	failed bool
}

// New returns a Table that is empty until Run.
func New() *Table {
	return &Table{Changed: notify.NewSignal(), Ready: make(chan struct{}), entries: map[at]entry{}}
}

// retry is after how long a subscription that ended is renewed.
const retry = time.Second

// Run follows the kernel of the process's network namespace until ctx is done.
func (t *Table) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := t.follow(ctx); err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(retry):
			}
		}
	}
	return nil
}

// follow subscribes to changes, reads what there is, and follows the changes until a subscription ends.
func (t *Table) follow(ctx context.Context) error {
	done := make(chan struct{})
	neighbours, links := make(chan netlink.NeighUpdate, 64), make(chan netlink.LinkUpdate, 16)
	routes, addrs := make(chan netlink.RouteUpdate, 64), make(chan netlink.AddrUpdate, 16)
	var subscribed []func() // which wait for the end of a subscription
	defer func() {
		close(done)
		for _, end := range subscribed {
			go end()
		}
	}()
	var errs []error
	add := func(err error, end func()) {
		if errs = append(errs, err); err == nil {
			subscribed = append(subscribed, end)
		}
	}
	add(netlink.NeighSubscribe(neighbours, done), func() { drain(neighbours) })
	add(netlink.LinkSubscribe(links, done), func() { drain(links) })
	add(netlink.RouteSubscribe(routes, done), func() { drain(routes) })
	add(netlink.AddrSubscribe(addrs, done), func() { drain(addrs) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("following neighbours and routes: %w", err)
	}
	list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // changes come as notifications
		return fmt.Errorf("reading the neighbours: %w", err)
	}
	for i := range list {
		t.learn(&list[i])
	}
	t.other()
	t.ready.Do(func() { close(t.Ready) })
	for {
		open := true
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-neighbours:
			if open = ok; ok && u.Type == unix.RTM_NEWNEIGH {
				t.learn(&u.Neigh)
			}
		case _, open = <-links:
			t.other()
		case _, open = <-routes:
			t.other()
		case _, open = <-addrs:
			t.other()
		}
		if !open {
			return errors.New("a subscription ended")
		}
	}
}

// drain has a subscription end that may wait for a reader.
func drain[T any](c <-chan T) {
	for range c {
		continue
	}
}

func (t *Table) other() {
	t.mu.Lock()
	t.routes++
	t.mu.Unlock()
	t.Changed.Notify()
}

// learn takes over what the kernel says of a neighbour.
func (t *Table) learn(n *netlink.Neigh) {
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return
	}
	key := at{n.LinkIndex, addr.Unmap()}
	t.mu.Lock()
	before := t.entries[key]
	now := before
	switch {
	case n.State&unix.NUD_FAILED != 0:
		now.failed = true
	case n.State&valid != 0 && len(n.HardwareAddr) == len(now.mac):
		now = entry{mac: MAC(n.HardwareAddr)}
	}
	if now != (entry{}) {
		t.entries[key] = now
	}
	t.mu.Unlock()
	if now != before {
		t.Changed.Notify()
	}
}

// valid are the states in which the kernel uses the address that it has.
const valid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE |
	unix.NUD_DELAY

// MAC returns the address of a neighbour on a link, zero if it is not known or does not answer.
func (t *Table) MAC(link int, addr netip.Addr) MAC {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[at{link, addr}]; !e.failed {
		return e.mac
	}
	return MAC{}
}

// Routes returns a number that changes when routes, addresses or interfaces may have.
func (t *Table) Routes() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.routes
}

// Ask has the kernel find out a neighbour's address, or whether it still answers.
func Ask(link int, addr netip.Addr) error {
	who := &netlink.Neigh{LinkIndex: link, IP: addr.AsSlice(), Flags: netlink.NTF_USE, Family: family(addr)}
	if err := netlink.NeighSet(who); err != nil {
		return fmt.Errorf("asking for the neighbour %s: %w", addr, err)
	}
	return nil
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// OnLink reports whether packets to an address leave through the interface, without a router.
func OnLink(link int, addr netip.Addr) bool {
	routes, err := netlink.RouteGet(addr.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].LinkIndex == link && routes[0].Gw == nil && routes[0].Via == nil &&
		routes[0].Type == unix.RTN_UNICAST
}

// Link is a network interface.
type Link struct {
	Name  string
	Index int
	Addrs []netip.Addr
}

// ErrNoLink says that there is no such interface.
var ErrNoLink = errors.New("no such interface")

// LinkNamed returns the interface with a name, or ErrNoLink.
func LinkNamed(name string) (Link, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return Link{}, ErrNoLink
	}
	if err != nil {
		return Link{}, fmt.Errorf("finding the interface %s: %w", name, err)
	}
	return withAddrs(link)
}

// LinkWith returns the first interface that has one of some addresses, or ErrNoLink.
func LinkWith(addrs []netip.Addr) (Link, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return Link{}, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	for _, addr := range addrs {
		for _, a := range list {
			if a.IP.Equal(net.IP(addr.AsSlice())) {
				link, err := netlink.LinkByIndex(a.LinkIndex)
				if err != nil {
					return Link{}, fmt.Errorf("finding the interface with %s: %w", addr, err)
				}
				return withAddrs(link)
			}
		}
	}
	return Link{}, ErrNoLink
}

func withAddrs(link netlink.Link) (Link, error) {
	out := Link{Name: link.Attrs().Name, Index: link.Attrs().Index}
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return out, fmt.Errorf("reading the addresses of %s: %w", out.Name, err)
	}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out.Addrs = append(out.Addrs, addr.Unmap())
		}
	}
	return out, nil
}
