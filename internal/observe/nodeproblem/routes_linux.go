package nodeproblem

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/model"
)

// maxAsked is how many addresses the kernel is asked about after a look. What is beyond is taken
// to be reachable.
const maxAsked = 1 << 10

// routes find the endpoints to which the node has no route. The kernel forgets connections to them
// when it drops their first packet: traffic shows nothing.
type routes struct {
	// dead are the ranges for which routes say that there is no way, as network plugins have
	// them for pods that are gone; all addresses if there is no default route.
	dead  []netip.Prefix
	asked map[netip.Addr]bool
}

// readRoutes reads the dead ranges. What cannot be read is reachable.
func readRoutes() (dead []netip.Prefix) {
	for _, f := range model.Families {
		family, everywhere := unix.AF_INET, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if f == model.IPv6 {
			family, everywhere = unix.AF_INET6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		byDefault := false
		err := netlink.RouteListFilteredIter(family, &netlink.Route{}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			switch r.Type {
			case unix.RTN_UNICAST:
				byDefault = byDefault || r.Dst == nil || isDefault(r.Dst)
			case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
				if r.Dst == nil || isDefault(r.Dst) { // without a better one, byDefault says so
					break
				}
				if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
					ones, _ := r.Dst.Mask.Size()
					dead = append(dead, netip.PrefixFrom(addr.Unmap(), ones))
				}
			}
			return true
		})
		if err == nil && !byDefault {
			dead = append(dead, everywhere)
		}
	}
	return dead
}

func isDefault(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0 && n.IP.IsUnspecified()
}

// doubtful reports whether there may be no route to an address.
func (r *routes) doubtful(addr netip.Addr) bool {
	return slices.ContainsFunc(r.dead, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (r *routes) lost(addr netip.Addr) bool {
	if !addr.IsValid() || !r.doubtful(addr) {
		return false
	}
	lost, known := r.asked[addr]
	if !known && len(r.asked) < maxAsked {
		lost = hasNoRoute(addr)
		r.asked[addr] = lost
	}
	return lost
}

// hasNoRoute asks the kernel. The errors are those of routes of the types above, and of no route.
func hasNoRoute(addr netip.Addr) bool {
	_, err := netlink.RouteGet(addr.AsSlice())
	return slices.ContainsFunc([]error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL}, func(no error) bool { return errors.Is(err, no) })
}

// links are whether interfaces are idle: they do not exist, are down, or have no link, as a
// bridge without ports. Each is asked for once.
type links map[string]bool

func (l links) idle(name string) bool {
	idle, known := l[name]
	if !known {
		idle = isIdle(name)
		l[name] = idle
	}
	return idle
}

// isIdle reports whether an interface cannot have packets. What cannot be found out may have some.
func isIdle(name string) bool {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return errors.Is(err, unix.ENODEV)
	}
	return request.Uint16()&unix.IFF_RUNNING == 0
}
