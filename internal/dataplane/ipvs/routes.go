package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
	"sluice/internal/model"
)

// IPVS gets packets that are delivered to the node. The addresses of Services are no
// addresses of the node, so that it does not answer ARP for them and nothing can listen
// there. Instead routes of a table of our own lead them to the node, and rules lead
// packets of the protocols of Services to that table.
//
// Packets of the node itself pass IPVS anyway. They skip the rules: the routes would
// make the address of the Service their source.
const (
	routeTable = 51_007
	// routeOwner is the number in place of a routing daemon's.
	routeOwner = 0x51
	// The priorities of the rules are after that of the table of local addresses, and
	// before those of network plugins.
	skipPriority, rulePriority, skippedPriority = 89, 90, 91
)

// rule is a rule of ours.
type rule struct {
	priority uint32
	action   byte // FR_ACT_...
	protocol byte // of the packets, 0 for any
	fromNode bool // packets of the node itself
}

// rules are in the order in which they are added.
var rules = []rule{
	{priority: skippedPriority, action: unix.FR_ACT_NOP},
	{priority: skipPriority, action: unix.FR_ACT_GOTO, fromNode: true},
	{priority: rulePriority, action: unix.FR_ACT_TO_TBL, protocol: unix.IPPROTO_TCP},
	{priority: rulePriority, action: unix.FR_ACT_TO_TBL, protocol: unix.IPPROTO_UDP},
	{priority: rulePriority, action: unix.FR_ACT_TO_TBL, protocol: unix.IPPROTO_SCTP},
}

// routes mirrors the routes and rules of a table of ours.
type routes struct {
	table uint32
	shift uint32 // added to the priorities of the rules
	// sources, if it is set, makes packets of the node take the routes too, from these
	// addresses.
	sources map[model.Family]netip.Addr
	handle  *netlink.Handle
	conn    *nfnetlink.Conn // for rules
	lo      int             // index of the loopback interface
	present map[netip.Prefix]struct{}
	// rules are the families that have rules.
	rules map[model.Family]bool
}

// openRoutes opens a socket in a network namespace, given as an open file descriptor; 0
// is the caller's own.
func openRoutes(fd int) (*routes, error) { return openTable(fd, routeTable, 0) }

// openTable is openRoutes for another table. Shift is added to the priorities of its
// rules.
func openTable(fd int, table, shift uint32) (*routes, error) {
	r := &routes{table: table, shift: shift, present: map[netip.Prefix]struct{}{}, rules: map[model.Family]bool{}}
	var err error
	if fd == 0 {
		r.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	} else {
		r.handle, err = netlink.NewHandleAt(netns.NsHandle(fd), unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	if r.conn, err = nfnetlink.DialRoute(fd); err != nil {
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
	if r.conn != nil {
		r.conn.Close()
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
		list, err := r.handle.RouteListFiltered(netlinkFamily(f), &netlink.Route{Table: int(r.table)}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("listing the routes of table %d: %w", r.table, err)
		}
		for _, route := range list {
			if p, ok := prefixOf(route.Dst, f); ok && route.Type == unix.RTN_LOCAL {
				r.present[p] = struct{}{}
			}
		}
		ours, err := r.ourRules(f)
		if err != nil {
			return err
		}
		r.rules[f] = ours == len(r.wantedRules())
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

// ourRules counts the rules of ours that are there.
func (r *routes) ourRules(f model.Family) (n int, err error) {
	list, err := r.handle.RuleList(netlinkFamily(f))
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return 0, nil // IPv6 is switched off
	}
	if err != nil {
		return 0, fmt.Errorf("listing the routing rules: %w", err)
	}
	for _, found := range list {
		priority := found.Priority - int(r.shift)
		if found.Protocol == routeOwner && priority >= skipPriority && priority <= skippedPriority {
			n++
		}
	}
	return n, nil
}

// add adds the routes that are missing, and then the rules.
func (r *routes) add(want map[netip.Prefix]struct{}, families []model.Family) error {
	for p := range want {
		if _, ok := r.present[p]; ok {
			continue
		}
		route := r.route(p)
		if source := r.sources[model.FamilyOf(p.Addr())]; source.IsValid() {
			route.Src = source.AsSlice()
		}
		if err := r.handle.RouteReplace(route); err != nil {
			return fmt.Errorf("adding the route to %s in table %d: %w", p, r.table, err)
		}
		r.present[p] = struct{}{}
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
	if _, ok := r.present[p]; !ok {
		return nil
	}
	if err := r.handle.RouteDel(r.route(p)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s from table %d: %w", p, r.table, err)
	}
	delete(r.present, p)
	return nil
}

// route returns a route that leads a prefix to the node.
func (r *routes) route(p netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Table: int(r.table), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: routeOwner,
		LinkIndex: r.lo, Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
}

// wantedRules returns the rules to add, in this order.
func (r *routes) wantedRules() []rule {
	if r.sources == nil {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), func(rule rule) bool { return rule.action != unix.FR_ACT_TO_TBL })
}

func (r *routes) addRules(f model.Family) error {
	if r.rules[f] {
		return nil
	}
	for _, rule := range r.wantedRules() {
		if err := r.changeRule(unix.RTM_NEWRULE, f, rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding a routing rule for table %d: %w", r.table, err)
		}
	}
	r.rules[f] = true
	return nil
}

// changeRule adds or deletes a rule. The library encodes protocols in a way that the
// kernel complains about.
func (r *routes) changeRule(command uint16, f model.Family, rule rule) error {
	flags := uint16(0)
	if command == unix.RTM_NEWRULE {
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	b := nfnetlink.AppendHeader(nil, command, flags)
	b = append(b, byte(netlinkFamily(f)), 0, 0, 0, 0, 0, 0, rule.action, 0, 0, 0, 0) // struct fib_rule_hdr
	number := func(typ uint16, v uint32) { b = nfnetlink.AppendAttr(b, typ, binary.NativeEndian.AppendUint32(nil, v)) }
	number(unix.FRA_PRIORITY, rule.priority+r.shift)
	switch rule.action {
	case unix.FR_ACT_TO_TBL:
		number(unix.FRA_TABLE, r.table)
	case unix.FR_ACT_GOTO:
		number(unix.FRA_GOTO, skippedPriority+r.shift)
	}
	if rule.protocol != 0 {
		b = nfnetlink.AppendAttr(b, unix.FRA_IP_PROTO, []byte{rule.protocol})
	}
	if rule.fromNode {
		b = nfnetlink.AppendAttr(b, unix.FRA_IIFNAME, []byte("lo\x00"))
	}
	b = nfnetlink.AppendAttr(b, unix.FRA_PROTOCOL, []byte{routeOwner})
	return r.conn.Do(b, nil)
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
		errs = append(errs, r.removeRules(f))
	}
	errs = append(errs, r.read(families), r.removeOthers(nil))
	clear(r.rules)
	return errors.Join(errs...)
}

// removeRules removes the rules of a family.
func (r *routes) removeRules(f model.Family) error {
	var errs []error
	for _, rule := range slices.Backward(rules) {
		err := r.changeRule(unix.RTM_DELRULE, f, rule)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, fmt.Errorf("removing a routing rule for table %d: %w", r.table, err))
		}
	}
	r.rules[f] = false
	return errors.Join(errs...)
}
