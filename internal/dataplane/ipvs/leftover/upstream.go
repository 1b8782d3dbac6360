//go:build linux

package leftover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/netns"
)

// Link is the dummy link that upstream's ipvs mode has all addresses on. Network plugins
// and people look for it to find out whether IPVS is in use.
const Link = "kube-ipvs0"

// AddLink adds the link, without addresses, unless it exists, in a network namespace, given as
// an open file descriptor; 0 is the caller's own.
func AddLink(fd int) error {
	err := netns.Do(fd, func() error {
		return netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: Link}})
	})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the link %s: %w", Link, err)
	}
	return nil
}

// Upstream is what upstream's ipvs mode left behind. Its link has the addresses of all its
// virtual services but those of node ports, whose ports are in its sets.
type Upstream struct {
	link      netlink.Link // nil if there is none
	addresses []netlink.Addr
	on        map[netip.Addr]bool // addresses
	ports     map[nodePort]bool
}

// FindUpstream reads the link and the sets in a network namespace, given as an open file
// descriptor; 0 is the caller's own.
func FindUpstream(ctx context.Context, fd int) (u *Upstream, err error) {
	err = netns.Do(fd, func() (err error) {
		u, err = readUpstream(ctx)
		return err
	})
	return u, err
}

func readUpstream(ctx context.Context) (*Upstream, error) {
	u := &Upstream{on: map[netip.Addr]bool{}}
	var err error
	u.link, err = netlink.LinkByName(Link)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		u.link = nil
		return u, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding the link %s: %w", Link, err)
	}
	list, err := netlink.AddrList(u.link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", Link, err)
	}
	for _, a := range list {
		ip := addrOf(a.IP)
		if ip.IsLinkLocalUnicast() {
			continue // the kernel gives it to every link
		}
		u.addresses, u.on[ip] = append(u.addresses, a), true
	}
	u.ports, err = nodePorts(ctx)
	return u, err
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Owns reports whether a virtual service is upstream's: its address is on the link, or
// its port is a node port. Without the link there are none.
func (u *Upstream) Owns(k ipvs.Key) bool {
	return u.link != nil && k.Mark == 0 && (u.on[k.Addr] || u.ports[nodePort{k.Protocol, k.Port}])
}

func (u *Upstream) removeAddress(a netlink.Addr) error {
	if err := netlink.AddrDel(u.link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing %s from the link %s: %w", a.IP, Link, err)
	}
	return nil
}

// unroute removes the kernel's own route to an address of the link. The node no longer
// answers ARP for it, and does not connect from it unless it is bound to.
func (u *Upstream) unroute(a netlink.Addr) error {
	err := netlink.RouteDel(&netlink.Route{
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		LinkIndex: u.link.Attrs().Index, Dst: netlink.NewIPNet(a.IP),
	})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the kernel's route to %s: %w", a.IP, err)
	}
	return nil
}

func (u *Upstream) removeLink() error {
	if err := netlink.LinkDel(u.link); err != nil {
		return fmt.Errorf("removing the link %s: %w", Link, err)
	}
	return nil
}

// sourceIPs returns the addresses that the node connects from: those on the way to
// addresses far away, or else any that is not upstream's.
func (u *Upstream) sourceIPs() map[inet.Family]netip.Addr {
	sources := map[inet.Family]netip.Addr{}
	far := map[inet.Family]string{inet.IPv4: "192.0.2.1", inet.IPv6: "2001:db8::1"} // for documentation
	for f, to := range far {
		if list, err := netlink.RouteGet(net.ParseIP(to)); err == nil && len(list) > 0 && list[0].Src != nil && !u.on[addrOf(list[0].Src)] {
			sources[f] = addrOf(list[0].Src)
		} else {
			sources[f] = anySourceIP(f)
		}
	}
	return sources
}

// anySourceIP returns an address of a link other than upstream's.
func anySourceIP(f inet.Family) netip.Addr {
	links, err := netlink.LinkList()
	if err != nil {
		return netip.Addr{}
	}
	for _, l := range links {
		if l.Attrs().Name == Link {
			continue
		}
		list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range list {
			if ip := addrOf(a.IP); inet.FamilyOf(ip) == f && ip.IsGlobalUnicast() {
				return ip
			}
		}
	}
	return netip.Addr{}
}
