//go:build linux

package localroute

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

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nfnetlink"
)

// Packets of the node itself are not led to the table, unless Sources is set: the routes would
// make the address that they are sent to their source.
const (
	// owner is the number in place of a routing daemon's.
	owner = 0x51
	// The priorities of the rules are after that of the table of local addresses, and
	// before those of network plugins.
	skipPriority, rulePriority, skippedPriority = 89, 90, 91
	// Priorities is how many a table takes.
	Priorities = skippedPriority - skipPriority + 1
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

// Table mirrors a table of routes that lead prefixes to the node, and the rules that lead packets
// of the protocols of Services to the table.
type Table struct {
	number uint32
	shift  uint32 // added to the priorities of the rules
	handle *netlink.Handle
	conn   *nfnetlink.Conn // for rules
	lo     int             // index of the loopback interface

	// Sources, if it is set, makes packets of the node take the routes too, from these
	// addresses.
	Sources map[inet.Family]netip.Addr
	// Present are the routes that are there.
	Present map[netip.Prefix]struct{}
	// Ruled are the families that have rules.
	Ruled map[inet.Family]bool
}

// Open opens a table in a network namespace, given as an open file descriptor; 0 is the
// caller's own. Shift is added to the priorities of its rules: tables that are in use at the
// same time differ by Priorities.
func Open(fd int, number, shift uint32) (*Table, error) {
	t := &Table{number: number, shift: shift, Present: map[netip.Prefix]struct{}{}, Ruled: map[inet.Family]bool{}}
	var err error
	if fd == 0 {
		t.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	} else {
		t.handle, err = netlink.NewHandleAt(netns.NsHandle(fd), unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	if t.conn, err = nfnetlink.DialRoute(fd); err != nil {
		t.Close()
		return nil, err
	}
	lo, err := t.handle.LinkByName("lo")
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("finding the loopback interface: %w", err)
	}
	t.lo = lo.Attrs().Index
	return t, nil
}

// Close closes the sockets and leaves the routes as they are.
func (t *Table) Close() {
	t.handle.Close()
	if t.conn != nil {
		t.conn.Close()
	}
}

func familyNumber(f inet.Family) int {
	if f == inet.IPv4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// Read reads what the kernel holds.
func (t *Table) Read(families []inet.Family) error {
	clear(t.Present)
	clear(t.Ruled)
	for _, f := range families {
		list, err := t.handle.RouteListFiltered(familyNumber(f), &netlink.Route{Table: int(t.number)}, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("listing the routes of table %d: %w", t.number, err)
		}
		for _, route := range list {
			if p, ok := prefixOf(route.Dst, f); ok && route.Type == unix.RTN_LOCAL {
				t.Present[p] = struct{}{}
			}
		}
		ours, err := t.ourRules(f)
		if err != nil {
			return err
		}
		t.Ruled[f] = ours == len(t.wantedRules())
	}
	return nil
}

func prefixOf(n *net.IPNet, f inet.Family) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	if ip = ip.Unmap(); inet.FamilyOf(ip) != f {
		return netip.Prefix{}, false
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip, bits), true
}

// ourRules counts the rules of ours that are there.
func (t *Table) ourRules(f inet.Family) (n int, err error) {
	list, err := t.handle.RuleList(familyNumber(f))
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return 0, nil // IPv6 is switched off
	}
	if err != nil {
		return 0, fmt.Errorf("listing the routing rules: %w", err)
	}
	for _, found := range list {
		priority := found.Priority - int(t.shift)
		if found.Protocol == owner && priority >= skipPriority && priority <= skippedPriority {
			n++
		}
	}
	return n, nil
}

// Intact reports whether the rules of a family are there, if it has any.
func (t *Table) Intact(f inet.Family) (bool, error) {
	found, err := t.ourRules(f)
	return !t.Ruled[f] || found == len(t.wantedRules()), err
}

// Add adds the routes that are missing, and then the rules.
func (t *Table) Add(want map[netip.Prefix]struct{}, families []inet.Family) error {
	for p := range want {
		if _, ok := t.Present[p]; ok {
			continue
		}
		route := t.route(p)
		if source := t.Sources[inet.FamilyOf(p.Addr())]; source.IsValid() {
			route.Src = source.AsSlice()
		}
		if err := t.handle.RouteReplace(route); err != nil {
			return fmt.Errorf("adding the route to %s in table %d: %w", p, t.number, err)
		}
		t.Present[p] = struct{}{}
	}
	for _, f := range families {
		if err := t.addRules(f); err != nil {
			return err
		}
	}
	return nil
}

// RemoveOthers removes the routes that are not needed.
func (t *Table) RemoveOthers(needed map[netip.Prefix]struct{}) error {
	for p := range t.Present {
		if _, ok := needed[p]; ok {
			continue
		}
		if err := t.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a route, if it is there.
func (t *Table) Remove(p netip.Prefix) error {
	if _, ok := t.Present[p]; !ok {
		return nil
	}
	if err := t.handle.RouteDel(t.route(p)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s from table %d: %w", p, t.number, err)
	}
	delete(t.Present, p)
	return nil
}

// route returns a route that leads a prefix to the node.
func (t *Table) route(p netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Table: int(t.number), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: owner,
		LinkIndex: t.lo, Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
}

// wantedRules returns the rules to add, in this order.
func (t *Table) wantedRules() []rule {
	if t.Sources == nil {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), func(rule rule) bool { return rule.action != unix.FR_ACT_TO_TBL })
}

func (t *Table) addRules(f inet.Family) error {
	if t.Ruled[f] {
		return nil
	}
	for _, rule := range t.wantedRules() {
		if err := t.changeRule(unix.RTM_NEWRULE, f, rule); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding a routing rule for table %d: %w", t.number, err)
		}
	}
	t.Ruled[f] = true
	return nil
}

// changeRule adds or deletes a rule. The library encodes protocols in a way that the
// kernel complains about.
func (t *Table) changeRule(command uint16, f inet.Family, rule rule) error {
	flags := uint16(0)
	if command == unix.RTM_NEWRULE {
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	b := nfnetlink.AppendHeader(nil, command, flags)
	b = append(b, byte(familyNumber(f)), 0, 0, 0, 0, 0, 0, rule.action, 0, 0, 0, 0) // struct fib_rule_hdr
	number := func(typ uint16, v uint32) { b = nfnetlink.AppendAttr(b, typ, binary.NativeEndian.AppendUint32(nil, v)) }
	number(unix.FRA_PRIORITY, rule.priority+t.shift)
	switch rule.action {
	case unix.FR_ACT_TO_TBL:
		number(unix.FRA_TABLE, t.number)
	case unix.FR_ACT_GOTO:
		number(unix.FRA_GOTO, skippedPriority+t.shift)
	}
	if rule.protocol != 0 {
		b = nfnetlink.AppendAttr(b, unix.FRA_IP_PROTO, []byte{rule.protocol})
	}
	if rule.fromNode {
		b = nfnetlink.AppendAttr(b, unix.FRA_IIFNAME, []byte("lo\x00"))
	}
	b = nfnetlink.AppendAttr(b, unix.FRA_PROTOCOL, []byte{owner})
	return t.conn.Do(b, nil)
}

// RemoveAll removes all routes of the table, and its rules.
func (t *Table) RemoveAll(families []inet.Family) error {
	var errs []error
	for _, f := range families {
		errs = append(errs, t.RemoveRules(f))
	}
	errs = append(errs, t.Read(families), t.RemoveOthers(nil))
	clear(t.Ruled)
	return errors.Join(errs...)
}

// RemoveRules removes the rules of a family.
func (t *Table) RemoveRules(f inet.Family) error {
	var errs []error
	for _, rule := range slices.Backward(rules) {
		err := t.changeRule(unix.RTM_DELRULE, f, rule)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, fmt.Errorf("removing a routing rule for table %d: %w", t.number, err))
		}
	}
	t.Ruled[f] = false
	return errors.Join(errs...)
}
