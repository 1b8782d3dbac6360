//go:build linux

package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A quartet is a lab of four nodes on a link, each with a pod, with a client behind a router:
//
//	   client                    the router sends the external addresses to one of the nodes, n1 at first
//	198.51.100.10
//	      │
//	   router
//	     │ 192.0.2.1
//	   ──┴─────┬────────────┬────────────┬────────────┬── switch
//	      192.0.2.11   192.0.2.12   192.0.2.13   192.0.2.14
//	          n1           n2           n3           n4
//	          │            │            │            │
//	          p1           p2           p3           p4
//	      10.244.1.1   10.244.2.1   10.244.3.1   10.244.4.1
//
// Nodes find each other's addresses on the link as on any other, and send what is for the client through the router.
const (
	router     = "router"
	toSwitch   = "switch"
	routerSide = "link" // the router's interface to the switch
)

var (
	clientCIDRs = prefixes("198.51.100.0/24", "2001:db8:1::/64")
	routerAddrs = addresses("192.0.2.1", "2001:db8::1")
	gatewayOf   = addresses("198.51.100.1", "2001:db8:1::1") // of the client
)

// Nodes are the names of the nodes of a quartet.
var Nodes = []string{"n1", "n2", "n3", "n4"}

func quartetHosts() []*Host {
	hosts := []*Host{{Name: toSwitch}, {Name: router, Addrs: routerAddrs}, {Name: "client", Addrs: addresses("198.51.100.10", "2001:db8:1::10")}}
	for i, name := range Nodes {
		n := i + 1
		hosts = append(hosts,
			&Host{Name: name, Node: name, Addrs: addresses(fmt.Sprintf("192.0.2.1%d", n), fmt.Sprintf("2001:db8::1%d", n))},
			&Host{Name: fmt.Sprintf("p%d", n), Node: name, Addrs: addresses(fmt.Sprintf("10.244.%d.1", n), fmt.Sprintf("fd00:10:244:%d::1", n))})
	}
	return hosts
}

// StartQuartet builds a quartet for a test, as Start does a lab.
func StartQuartet(t T) *Lab {
	t.Helper()
	return started(t, NewQuartet)
}

// NewQuartet builds a quartet, as New does a lab.
func NewQuartet() (*Lab, error) {
	l := empty(quartetHosts())
	return l.build(l.makeHosts, l.allowLinkLocal, l.makeQuartetLinks, l.makePods, l.makeQuartetRoutes, l.awaitLinks, l.startEcho)
}

// allowLinkLocal has interfaces get link-local addresses, from which neighbours of IPv6 are asked for.
func (l *Lab) allowLinkLocal() error {
	for _, h := range l.order {
		if err := h.sysctls([][2]string{{"ipv6/conf/default/addr_gen_mode", "0"}}); err != nil {
			return err
		}
	}
	return nil
}

// makeQuartetLinks connects the nodes and the router to the switch, and the client to the router.
func (l *Lab) makeQuartetLinks() error {
	noSnooping := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &noSnooping}
	if err := l.hosts[toSwitch].links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the switch: %w", err)
	}
	if err := l.hosts[toSwitch].setUp(bridge, nil); err != nil {
		return err
	}
	for i, name := range append([]string{router}, Nodes...) {
		inside := uplink
		if name == router {
			inside = routerSide
		}
		if err := l.plug(l.hosts[toSwitch], name, l.hosts[name], inside, bridge.Index, byte(i+1)); err != nil {
			return fmt.Errorf("connect %s: %w", name, err)
		}
	}
	if err := l.plug(l.hosts[router], "client", l.hosts["client"], uplink, 0, 0x20); err != nil {
		return fmt.Errorf("connect the client: %w", err)
	}
	return nil
}

// plug connects an interface of a host to one of another host, which may be a port of a bridge.
func (l *Lab) plug(at *Host, port string, h *Host, inside string, master int, id byte) error {
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: master}, PeerName: inside,
		PeerHardwareAddr: hardwareAddr(int(id)), PeerNamespace: netlink.NsFd(h.file.Fd())}
	if err := at.links.LinkAdd(cable); err != nil {
		return err
	}
	if err := at.links.LinkSetUp(cable); err != nil {
		return err
	}
	link, err := h.links.LinkByName(inside)
	if err != nil {
		return err
	}
	return h.setUp(link, h.Addrs[:])
}

// makeQuartetRoutes makes the routes between what is connected.
func (l *Lab) makeQuartetRoutes() error {
	r, client := l.hosts[router], l.hosts["client"]
	port, err := r.links.LinkByName("client")
	if err != nil {
		return err
	}
	for _, addr := range gatewayOf {
		if err := r.links.AddrAdd(port, &netlink.Addr{IPNet: ipNet(host(addr)), Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
	}
	for f := range routerAddrs {
		everything := netip.PrefixFrom(unspecified(f), 0)
		if err := client.via(uplink, route{host(gatewayOf[f]), netip.Addr{}}, route{everything, gatewayOf[f]}); err != nil {
			return err
		}
		if err := r.links.RouteReplace(&netlink.Route{LinkIndex: port.Attrs().Index, Dst: ipNet(clientCIDRs[f]), Scope: netlink.SCOPE_LINK,
			Src: gatewayOf[f].AsSlice()}); err != nil {
			return err
		}
		if err := r.via(routerSide, route{to: nodeCIDRs[f]}); err != nil {
			return err
		}
		for _, name := range Nodes {
			n := l.hosts[name]
			routes := []route{{to: nodeCIDRs[f]}, {everything, routerAddrs[f]}}
			for i, other := range Nodes {
				if other != name {
					routes = append(routes, route{host(l.hosts[fmt.Sprint("p", i+1)].Addrs[f]), l.hosts[other].Addrs[f]})
				}
			}
			if err := n.via(uplink, routes...); err != nil {
				return fmt.Errorf("routes of %s: %w", name, err)
			}
		}
	}
	return l.EnterThrough("n1")
}

// via adds routes through an interface.
func (h *Host) via(name string, routes ...route) error {
	link, err := h.links.LinkByName(name)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if err := h.addRoute(link, r.to, r.via); err != nil {
			return fmt.Errorf("%v via %v: %w", r.to, r.via, err)
		}
	}
	return nil
}

// EnterThrough has the router of a quartet send the external addresses to a node.
func (l *Lab) EnterThrough(node string) error {
	for f := range ExternalCIDRs {
		if err := l.hosts[router].via(routerSide, route{ExternalCIDRs[f], l.hosts[node].Addrs[f]}); err != nil {
			return err
		}
	}
	return nil
}

// Plug puts the cable of a node of a quartet into the switch, or pulls it out.
func (l *Lab) Plug(node string, in bool) error {
	at := l.hosts[toSwitch]
	link, err := at.links.LinkByName(node)
	if err != nil {
		return err
	}
	if in {
		return at.links.LinkSetUp(link)
	}
	return at.links.LinkSetDown(link)
}
