//go:build linux

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// uplink is the interface that every host but the world has.
const uplink = "eth0"

// makeWire connects nodes and clients to the bridge in the world, and routes
// between them.
func (l *Lab) makeWire() error {
	world := l.hosts["world"]
	noSnooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "wire", HardwareAddr: hardwareAddr(0)}, MulticastSnooping: &noSnooping}
	if err := world.links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the wire: %w", err)
	}
	for i, h := range l.wired() {
		if err := l.plugIn(bridge, h, hardwareAddr(i)); err != nil {
			return fmt.Errorf("connect %s: %w", h.Name, err)
		}
	}
	for _, h := range l.wired() {
		if err := l.routeWire(h); err != nil {
			return fmt.Errorf("route on %s: %w", h.Name, err)
		}
	}
	return nil
}

// wired lists the hosts on the wire; the index of each is that of its hardware
// address.
func (l *Lab) wired() []*Host {
	h := l.hosts
	return []*Host{h["world"], h["node1"], h["node2"], h["client"], h["client2"]}
}

// plugIn gives a host its addresses on the wire, and a cable unless it is the
// world itself.
func (l *Lab) plugIn(bridge *netlink.Bridge, h *Host, mac net.HardwareAddr) error {
	if h.Name == "world" {
		return h.setUp(bridge, h.Addrs[:])
	}
	world := l.hosts["world"]
	port := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: h.Name, MasterIndex: bridge.Index},
		PeerName:         uplink,
		PeerHardwareAddr: mac,
		PeerNamespace:    netlink.NsFd(h.file.Fd()),
	}
	if err := world.links.LinkAdd(port); err != nil {
		return err
	}
	if err := world.links.LinkSetUp(port); err != nil {
		return err
	}
	link, err := h.links.LinkByName(uplink)
	if err != nil {
		return err
	}
	return h.setUp(link, append(h.Addrs[:], h.Spare...))
}

// routeWire adds the routes from a host on the wire to the others.
func (l *Lab) routeWire(h *Host) error {
	name := uplink
	if h.Name == "world" {
		name = "wire"
	}
	link, err := h.links.LinkByName(name)
	if err != nil {
		return err
	}
	for i, other := range l.wired() {
		if other == h {
			continue
		}
		for _, a := range append(other.Addrs[:], other.Spare...) {
			if err := h.addNeighbour(link, a, hardwareAddr(i)); err != nil {
				return err
			}
		}
	}
	for f := range h.Addrs {
		for _, r := range l.wireRoutes(h, f) {
			if err := h.addRoute(link, r.to, r.via); err != nil {
				return fmt.Errorf("%v via %v: %w", r.to, r.via, err)
			}
		}
	}
	return nil
}

type route struct {
	to  netip.Prefix
	via netip.Addr // invalid for what is on the link
}

// wireRoutes are the routes of a host on the wire for one family.
func (l *Lab) wireRoutes(h *Host, f int) []route {
	routes := []route{{to: nodeCIDRs[f]}}
	for _, c := range []*Host{l.hosts["client"], l.hosts["client2"]} {
		if c != h {
			routes = append(routes, route{to: host(c.Addrs[f])})
		}
	}
	node1, node2, world := l.hosts["node1"].Addrs[f], l.hosts["node2"].Addrs[f], l.hosts["world"].Addrs[f]
	everything := netip.PrefixFrom(unspecified(f), 0)
	switch h.Name {
	case "node1":
		return append(routes, route{Node2PodCIDRs[f], node2}, route{everything, world})
	case "node2":
		return append(routes, route{Node1PodCIDRs[f], node1}, route{ServiceCIDRs[f], node1},
			route{ExternalCIDRs[f], node1}, route{everything, world})
	case "world":
		return append(routes, route{to: everything})
	default:
		return append(routes, route{ServiceCIDRs[f], node1}, route{ExternalCIDRs[f], node1})
	}
}

// awaitLinks waits until the kernel has noticed that all links are up, which it does on its
// own time: until then it drops what they send.
func (l *Lab) awaitLinks() error {
	return testkit.Poll(testkit.Timeout, func() error {
		for _, h := range l.order {
			links, err := h.links.LinkList()
			if err != nil {
				return fmt.Errorf("links of %s: %w", h.Name, err)
			}
			for _, link := range links {
				if flags := link.Attrs().RawFlags; flags&unix.IFF_UP != 0 && flags&unix.IFF_RUNNING == 0 {
					return fmt.Errorf("%s of %s does not come up", link.Attrs().Name, h.Name)
				}
			}
		}
		return nil
	})
}

// makePods connects the pods to their nodes.
func (l *Lab) makePods() error {
	for i, h := range l.order {
		if !h.isPod() {
			continue
		}
		if err := l.connectPod(h, l.hosts[h.Node], byte(i)); err != nil {
			return fmt.Errorf("connect %s: %w", h.Name, err)
		}
	}
	return nil
}

// connectPod makes the link between a pod and its node, and the routes at both
// ends.
func (l *Lab) connectPod(pod, node *Host, id byte) error {
	nodeMAC, podMAC := hardwareAddr(int(id)|0x40), hardwareAddr(int(id)|0x80)
	end := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: pod.Name, HardwareAddr: nodeMAC},
		PeerName:         uplink,
		PeerHardwareAddr: podMAC,
		PeerNamespace:    netlink.NsFd(pod.file.Fd()),
	}
	if pod.Name == "pod3" {
		end.Name = PodBridge + "p"
		end.HardwareAddr = nil
	}
	if err := node.links.LinkAdd(end); err != nil {
		return err
	}
	var link netlink.Link = end
	if pod.Name == "pod3" {
		bridge, err := putBehindBridge(node, end, nodeMAC)
		if err != nil {
			return err
		}
		link = bridge
	}
	if err := node.setUp(link, nil); err != nil {
		return err
	}
	inside, err := pod.links.LinkByName(uplink)
	if err != nil {
		return err
	}
	if err := pod.setUp(inside, pod.Addrs[:]); err != nil {
		return err
	}
	for f, a := range pod.Addrs {
		if err := node.addNeighbour(link, a, podMAC); err != nil {
			return err
		}
		if err := node.addRoute(link, host(a), netip.Addr{}); err != nil {
			return err
		}
		if err := pod.addNeighbour(inside, podGateway[f], nodeMAC); err != nil {
			return err
		}
		if err := pod.addRoute(inside, netip.PrefixFrom(unspecified(f), 0), podGateway[f]); err != nil {
			return err
		}
	}
	return nil
}

// putBehindBridge makes the bridge of node1 with one port.
func putBehindBridge(node *Host, port *netlink.Veth, mac net.HardwareAddr) (*netlink.Bridge, error) {
	noSnooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: PodBridge, HardwareAddr: mac}, MulticastSnooping: &noSnooping}
	if err := node.links.LinkAdd(bridge); err != nil {
		return nil, err
	}
	if err := node.links.LinkSetMaster(port, bridge); err != nil {
		return nil, err
	}
	return bridge, node.links.LinkSetUp(port)
}

// setUp starts an interface and the loopback, and adds addresses. All but the
// first of each family are deprecated, so that the kernel never picks them as
// a source by itself.
func (h *Host) setUp(link netlink.Link, addrs []netip.Addr) error {
	loopback, err := h.links.LinkByIndex(1)
	if err != nil {
		return err
	}
	for _, up := range []netlink.Link{loopback, link} {
		if err := h.links.LinkSetUp(up); err != nil {
			return fmt.Errorf("start %s: %w", up.Attrs().Name, err)
		}
	}
	for i, a := range addrs {
		addr := &netlink.Addr{IPNet: ipNet(host(a)), Flags: unix.IFA_F_NODAD}
		if i >= 2 && a.Is6() {
			addr.PreferedLft, addr.ValidLft = 0, 1<<31-1
		}
		if err := h.links.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %v: %w", a, err)
		}
	}
	return nil
}

func (h *Host) addNeighbour(link netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
	err := h.links.NeighSet(&netlink.Neigh{
		LinkIndex:    link.Attrs().Index,
		State:        netlink.NUD_PERMANENT,
		IP:           a.AsSlice(),
		HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("add neighbour %v: %w", a, err)
	}
	return nil
}

// addRoute adds a route with the host's first address of the family as source.
// A route to everything without a next hop swallows it without an answer.
func (h *Host) addRoute(link netlink.Link, to netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Src: h.source(to.Addr())}
	switch {
	case !via.IsValid() && to.Bits() == 0:
		r = &netlink.Route{Type: unix.RTN_BLACKHOLE, Dst: ipNet(to)}
	case via.IsValid():
		r.Gw = via.AsSlice()
		r.Flags = int(netlink.FLAG_ONLINK)
	default:
		r.Scope = netlink.SCOPE_LINK
	}
	return h.links.RouteReplace(r)
}

func (h *Host) source(to netip.Addr) net.IP {
	if to.Is4() {
		return h.Addrs[v4].AsSlice()
	}
	return h.Addrs[v6].AsSlice()
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func unspecified(f int) netip.Addr {
	if f == v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func hardwareAddr(id int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(id)} }
