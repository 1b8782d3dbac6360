package nodeproblem

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Path is what decides which chains the packets of a connection to a Service pass.
type Path struct {
	From   plan.Client
	Family model.Family
	Via    Via
	// Own says that the endpoint has an address of this node.
	Own bool
	// Masqueraded says that the endpoint sees the node's address.
	Masqueraded bool
	// To is the endpoint, and Protocol its; if To is not valid the path is to all of them, and if its port is 0
	// to all ports.
	To       netip.AddrPort
	Protocol model.Protocol
}

// Via is who sends a connection to its endpoint.
type Via uint8

// They are:
const (
	ViaNAT      Via = iota // address translation
	ViaBalancer            // the kernel's balancer
	ViaProxy               // the proxy, which accepts connections and opens others
)

// PathTo returns the path of a kind of client to endpoints of a route of a frontend: to those
// that have an address of this node, or to the others.
func PathTo(from plan.Client, f *plan.Frontend, r *plan.Route, own bool) Path {
	p := Path{From: from, Family: f.Family(), Own: own}
	switch {
	case f.ProxyConnects:
		p.Via = ViaProxy
	case r.Delegated():
		p.Via = ViaBalancer
	}
	p.Masqueraded, _ = (&plan.Decision{Packet: plan.Packet{From: from}, Frontend: f}).Masquerade(netip.Addr{})
	return p
}

// clients are the kinds of them.
var clients = [...]plan.Client{plan.PodClient, plan.OutsideClient, plan.NodeClient}

// pathsIn returns the paths that connections to Services take, as they are planned, on a node
// with some addresses.
func pathsIn(desired *plan.Desired, own func(netip.Addr) bool) map[Path]struct{} {
	paths := map[Path]struct{}{}
	pools := map[*plan.Endpoint][2]bool{} // whether they have endpoints elsewhere and here; frontends share them
	for _, f := range desired.Frontends {
		for _, from := range clients {
			route := &f.Route
			if f.Outside != nil && from == plan.OutsideClient {
				route = f.Outside
			}
			if len(route.Endpoints) == 0 {
				continue
			}
			has, known := pools[&route.Endpoints[0]]
			if !known {
				for _, e := range route.Endpoints {
					if own(e.Addr()) {
						has[1] = true
					} else {
						has[0] = true
					}
				}
				pools[&route.Endpoints[0]] = has
			}
			for i, there := range has {
				if there {
					paths[PathTo(from, f, route, i == 1)] = struct{}{}
				}
			}
		}
	}
	return paths
}

// hook is where a chain meets packets: enum nf_inet_hooks of linux/netfilter.h.
type hook uint32

const (
	input   hook = 1
	forward hook = 2
	output  hook = 3
)

// Obstacle is what keeps the connections on a path from being answered.
type Obstacle struct {
	Kind   Kind
	Why    string // in a few words
	Remedy string
	// Partial says that some connections are answered nevertheless.
	Partial bool
}

// Kind is the kind of an Obstacle. Kinds are part of interfaces and never change.
type Kind string

// The kinds.
const (
	ForwardingOff Kind = "forwarding-off" // the kernel forwards no packets
	Firewall      Kind = "firewall"       // a chain of another program drops them
	NoRoute       Kind = "no-route"       // the kernel does not know the way to the endpoint
	ConntrackFull Kind = "conntrack-full" // the kernel has no room for new connections
)

// leg is a hook that the packets of a path pass, and what they are there.
type leg struct {
	hook   hook
	packet packet
	// doubted says that it matters whether a chain may drop them: most firewalls do not
	// accept all packets here, and are right.
	doubted bool
	accept  remedy
}

// remedy is the condition of a rule that would accept the packets of a leg.
type remedy struct{ nft, iptables string }

var (
	acceptTranslated  = remedy{"ct status dnat", "-m conntrack --ctstate DNAT"}
	acceptEstablished = remedy{"ct state established,related", "-m conntrack --ctstate RELATED,ESTABLISHED"}
	acceptNew         = remedy{"ct state new,established,related", "-m conntrack --ctstate NEW,RELATED,ESTABLISHED"}
)

// legs returns the hooks at which other programs' chains meet the packets of a path.
func (p Path) legs() []leg {
	first := packet{family: p.Family, state: stateNew, translated: yes, masqueraded: p.Masqueraded, side: destination, endpoint: p.To, protocol: p.Protocol}
	reply := first
	reply.state, reply.side = stateEstablished, source
	second := first // from the proxy to the endpoint
	second.translated = no
	switch p.Via {
	case ViaBalancer: // which keeps its own tables, and translates where other chains may come before or after it
		first.translated, reply.translated = maybe, maybe
		first.side, reply.side = neither, neither
	case ViaProxy:
		first.side = neither
	}
	accept := acceptTranslated
	if p.Via == ViaBalancer {
		accept = acceptNew
	}
	var legs []leg
	switch {
	case p.Via == ViaProxy:
		if p.From != plan.NodeClient {
			legs = append(legs, leg{input, first, true, acceptTranslated})
		}
		if !p.Own {
			legs = append(legs, leg{output, second, true, acceptNew}, leg{input, reply, false, acceptEstablished})
		}
	case p.From == plan.NodeClient && p.Own: // by the loopback device
	case p.From == plan.NodeClient:
		legs = append(legs, leg{output, first, true, accept}, leg{input, reply, false, acceptEstablished})
	case p.Own:
		legs = append(legs, leg{input, first, p.Via == ViaBalancer, accept}, leg{output, reply, false, acceptEstablished})
	case p.Via == ViaBalancer:
		translated := first
		translated.side = destination
		legs = append(legs, leg{input, first, true, accept}, leg{output, translated, true, accept}, leg{forward, reply, false, acceptEstablished})
	default:
		legs = append(legs, leg{forward, first, true, accept}, leg{forward, reply, true, accept})
	}
	return legs
}

// forwarded reports whether the kernel must forward packets of a path.
func (p Path) forwarded() bool {
	return slices.ContainsFunc(p.legs(), func(l leg) bool { return l.hook == forward })
}
