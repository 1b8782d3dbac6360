package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nfnetlink"
)

// IPVS gets packets that are delivered to the node. The addresses of Services are no
// addresses of the node, so that it does not answer ARP for them and nothing can listen
// there. Instead routes of a table of our own lead them to the node, and rules lead
// packets of the protocols of Services to that table.
const (
	routeTable = 51_007
	// rulePriority is after the table of local addresses, and before the tables of
	// network plugins.
	rulePriority = 90
	// routeOwner is the number in place of a routing daemon's.
	routeOwner = 0x51
)

var ruleProtocols = []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}

// routes mirrors the routes and rules of our table.
type routes struct {
	handle *netlink.Handle
	socket *nfnetlink.Socket // for rules
	seq    uint32
	lo     int // index of the loopback interface
	// present are the routes, with the address that the node connects from.
	present map[netip.Prefix]netip.Addr
	// rules are the families that have rules.
	rules map[model.Family]bool
}

// openRoutes opens a socket in a network namespace, given as an open file descriptor; 0
// is the caller's own.
func openRoutes(fd int) (*routes, error) {
	r := &routes{present: map[netip.Prefix]netip.Addr{}, rules: map[model.Family]bool{}}
	var err error
	if fd == 0 {
		r.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	} else {
		r.handle, err = netlink.NewHandleAt(netns.NsHandle(fd), unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	if r.socket, err = nfnetlink.DialRoute(fd); err != nil {
		r.close()
		return nil, err
	}
	lo, err := r.handle.LinkByName("lo")
	if err != nil {
		r.close()
		return nil, fmt.Errorf("finding the loopback interface: %w", err)
	}
	r.lo = lo.Attrs().Index
	return r, nil
}

func (r *routes) close() {
	r.handle.Close()
	if r.socket != nil {
		r.socket.Close()
	}
}

func netlinkFamily(f model.Family) int {
	if f == model.IPv4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// read reads what the kernel holds.
func (r *routes) read(families []model.Family) error {
	clear(r.present)
	clear(r.rules)
	for _, f := range families {
		list, err := r.handle.RouteListFiltered(netlinkFamily(f), &netlink.Route{Table: routeTable}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("listing the routes of table %d: %w", routeTable, err)
		}
		for _, route := range list {
			if p, ok := prefixOf(route.Dst, f); ok && route.Type == unix.RTN_LOCAL {
				source, _ := netip.AddrFromSlice(route.Src)
				r.present[p] = source.Unmap()
			}
		}
		ours, err := r.ourRules(f)
		if err != nil {
			return err
		}
		r.rules[f] = len(ours) == len(ruleProtocols)
	}
	return nil
}

func prefixOf(n *net.IPNet, f model.Family) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	if ip = ip.Unmap(); model.FamilyOf(ip) != f {
		return netip.Prefix{}, false
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip, bits), true
}

// ourRules lists the rules that lead to our table.
func (r *routes) ourRules(f model.Family) ([]netlink.Rule, error) {
	list, err := r.handle.RuleList(netlinkFamily(f))
	if err != nil {
		return nil, fmt.Errorf("listing the routing rules: %w", err)
	}
	return slices.DeleteFunc(list, func(rule netlink.Rule) bool { return rule.Table != routeTable }), nil
}

// add adds the routes that are missing, and then the rules.
func (r *routes) add(want map[netip.Prefix]netip.Addr, families []model.Family) error {
	for _, p := range slices.SortedFunc(maps.Keys(want), netip.Prefix.Compare) {
		if source, ok := r.present[p]; ok && source == want[p] {
			continue
		}
		if err := r.handle.RouteReplace(r.route(p, want[p])); err != nil {
			return fmt.Errorf("adding the route to %s in table %d: %w", p, routeTable, err)
		}
		r.present[p] = want[p]
	}
	for _, f := range families {
		if err := r.addRules(f); err != nil {
			return err
		}
	}
	return nil
}

// removeOthers removes the routes that are not needed.
func (r *routes) removeOthers(needed map[netip.Prefix]struct{}) error {
	for p := range r.present {
		if _, ok := needed[p]; ok {
			continue
		}
		if err := r.remove(p); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a route, if it is there.
func (r *routes) remove(p netip.Prefix) error {
	source, ok := r.present[p]
	if !ok {
		return nil
	}
	if err := r.handle.RouteDel(r.route(p, source)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s from table %d: %w", p, routeTable, err)
	}
	delete(r.present, p)
	return nil
}

// route returns a route that leads a prefix to the node. Connections of the node itself
// to it come from source, if that is valid.
func (r *routes) route(p netip.Prefix, source netip.Addr) *netlink.Route {
	route := &netlink.Route{
		Table: routeTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: routeOwner,
		LinkIndex: r.lo, Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
	if source.IsValid() {
		route.Src = source.AsSlice()
	}
	return route
}

func (r *routes) addRules(f model.Family) error {
	if r.rules[f] {
		return nil
	}
	for _, protocol := range ruleProtocols {
		if err := r.changeRule(unix.RTM_NEWRULE, f, protocol); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding a routing rule for table %d: %w", routeTable, err)
		}
	}
	r.rules[f] = true
	return nil
}

// changeRule adds or deletes the rule of a protocol. The library encodes the protocol in
// a way that the kernel complains about.
func (r *routes) changeRule(command uint16, f model.Family, protocol byte) error {
	const headerLen = 12 // struct fib_rule_hdr
	b := make([]byte, nfnetlink.HeaderLen+headerLen)
	binary.NativeEndian.PutUint16(b[4:], command)
	flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK)
	if command == unix.RTM_NEWRULE {
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	binary.NativeEndian.PutUint16(b[6:], flags)
	b[nfnetlink.HeaderLen], b[len(b)-5] = byte(netlinkFamily(f)), unix.FR_ACT_TO_TBL
	b = nfnetlink.AppendAttr(b, unix.FRA_PRIORITY, binary.NativeEndian.AppendUint32(nil, rulePriority))
	b = nfnetlink.AppendAttr(b, unix.FRA_TABLE, binary.NativeEndian.AppendUint32(nil, routeTable))
	b = nfnetlink.AppendAttr(b, unix.FRA_IP_PROTO, []byte{protocol})
	b = nfnetlink.AppendAttr(b, unix.FRA_PROTOCOL, []byte{routeOwner})
	nfnetlink.EndMessage(b, 0)
	r.seq++
	nfnetlink.SetSeq(b, 0, r.seq)
	if err := r.socket.Send(b); err != nil {
		return err
	}
	var answer error
	for done := false; !done; {
		err := r.socket.Receive(func(h nfnetlink.Header, payload []byte) error {
			if done = h.Seq == r.seq; done {
				answer = nfnetlink.AckError(h, payload)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return answer
}

// link is the dummy link that upstream's ipvs mode has all addresses on. Network plugins
// and people look for it to find out whether IPVS is in use.
const link = "kube-ipvs0"

// addLink adds the link, without addresses, unless it exists.
func (r *routes) addLink() error {
	err := r.handle.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: link}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the link %s: %w", link, err)
	}
	return nil
}

// removeAll removes all routes and rules of our table.
func (r *routes) removeAll(families []model.Family) error {
	var errs []error
	for _, f := range families {
		ours, err := r.ourRules(f)
		errs = append(errs, err)
		for _, rule := range ours {
			if err := r.changeRule(unix.RTM_DELRULE, f, byte(rule.IPProto)); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("removing a routing rule for table %d: %w", routeTable, err))
			}
		}
	}
	errs = append(errs, r.read(families), r.removeOthers(nil))
	clear(r.rules)
	return errors.Join(errs...)
}
