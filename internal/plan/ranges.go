package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"sluice/internal/model"
)

// IsRange reports whether the frontend answers on a range of ports.
func (k Key) IsRange() bool { return k.Last != 0 }

// Ports are the ports of a range.
func (k Key) Ports() model.PortRange { return model.PortRange{First: k.Port, Last: k.Last} }

// PortText is the port, or the first and the last of a range.
func (k Key) PortText() string { return strconv.Itoa(int(k.Port)) + k.toLast() }

func (k Key) toLast() string {
	if !k.IsRange() {
		return ""
	}
	return "-" + strconv.Itoa(int(k.Last))
}

// place is the address and protocol of a key: ranges at one place may overlap.
func (k Key) place() Key { return Key{Addr: k.Addr, Protocol: k.Protocol} }

// within is the key with one port of a range.
func (k Key) within(port uint16) Key { return Key{Addr: k.Addr, Protocol: k.Protocol, Port: port} }

// Has reports whether a port is in the range.
func (k Key) Has(port Key) bool { return k.place() == port.place() && k.Ports().Contains(port.Port) }

// Overlaps reports whether two ranges have a port in common.
func (k Key) Overlaps(o Key) bool { return k.place() == o.place() && k.Ports().Overlaps(o.Ports()) }

// Ranges are keys of ranges by address and protocol, sorted and without overlaps.
type Ranges map[Key][]Key

// Find returns the range that has a port.
func (r Ranges) Find(at Key) (Key, bool) {
	all := r[at.place()]
	i, exact := slices.BinarySearchFunc(all, at.Port, func(k Key, port uint16) int { return cmp.Compare(k.Port, port) })
	if !exact {
		i--
	}
	if i < 0 || at.Port > all[i].Last {
		return Key{}, false
	}
	return all[i], true
}

// set replaces the ranges of a place.
func (r Ranges) set(place Key, all []Key) {
	if len(all) == 0 {
		delete(r, place)
	} else {
		r[place] = all
	}
}

// TargetOf returns an endpoint as it is in the pools of the frontend, if a connection to a port of the
// frontend leads there. It is in none if a connection to a range has another port there.
func (f *Frontend) TargetOf(to uint16, at netip.AddrPort) netip.AddrPort {
	if f.IsRange() && at.Port() == to {
		return netip.AddrPortFrom(at.Addr(), 0)
	}
	return at
}

// At returns the address and port at which an endpoint of the frontend gets connections to a port.
func (e Endpoint) At(to uint16) netip.AddrPort {
	if e.Port() == 0 {
		return netip.AddrPortFrom(e.Addr(), to)
	}
	return e.AddrPort
}

// String is the address and port, or the address where connections keep their port.
func (e Endpoint) String() string { return EndpointText(e.AddrPort) }

// EndpointText is Endpoint.String.
func EndpointText(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// keepPorts returns the pools of a service port for its ranges.
func (p *pools) keepPorts() pools {
	out := pools{cluster: p.cluster.keepPorts(), localUsable: p.localUsable}
	if p.local != nil {
		local := p.local.keepPorts()
		out.local = &local
	}
	out.besideCluster, out.besideLocal, out.besideBoth = keepPorts(p.besideCluster), keepPorts(p.besideLocal), keepPorts(p.besideBoth)
	return out
}

func (r *Route) keepPorts() Route {
	out := *r
	out.Endpoints, out.Balancer = keepPorts(r.Endpoints), nil
	return out
}

// keepPorts returns the addresses of endpoints, each once, of which connections keep their port.
func keepPorts(pool []Endpoint) []Endpoint {
	if pool == nil {
		return nil
	}
	out := make([]Endpoint, len(pool))
	for i, e := range pool {
		e.AddrPort = netip.AddrPortFrom(e.Addr(), 0)
		out[i] = e
	}
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.AddrPort == b.AddrPort })
}

// planRanges plans the ranges of a service port, which leave the choice of an endpoint to no balancer:
// one would have to know each of the ports.
func (d *draft) planRanges(port *model.ServicePort, f model.Family, pools *pools) {
	if len(port.Ranges) == 0 || !d.canRange() {
		return
	}
	ranged := pools.keepPorts()
	for _, r := range port.Ranges {
		for i := range d.addresses {
			if a := &d.addresses[i]; model.FamilyOf(a.Addr) == f {
				d.add(a, Key{Addr: a.Addr, Port: r.First, Last: r.Last, Protocol: port.Protocol}, port, &ranged)
			}
		}
	}
}

// portsField is the annotation of ranges.
const portsField = "metadata.annotations[sluice/ports]"

// canRange reports whether the ranges of the Service can be served, and if not, why.
func (d *draft) canRange() bool {
	p := model.Problem{Field: portsField}
	algorithm := d.env.algorithmOf(d.service)
	hasPort := algorithm == model.Maglev || algorithm == model.LeastConnections
	switch {
	case !d.env.portRanges || d.env.nodePortsOnly:
		p.Reason = "port ranges are not served in the proxy mode of this node"
		p.Remedy = "use another proxy mode, or list the ports in spec.ports"
	case d.service.Affinity > 0:
		p.Reason = "port ranges are not served with session affinity, which is to one port of an endpoint"
		p.Remedy = "set sessionAffinity to None and the annotation sluice/algorithm to source-hash, by which a client has one endpoint for all ports"
	case hasPort && d.env.algorithms.Has(algorithm):
		p.Reason = fmt.Sprintf("port ranges are not served with %s, which is about one port of an endpoint", algorithm)
		p.Remedy = "choose random, round-robin or source-hash by the annotation sluice/algorithm"
	default:
		return true
	}
	d.problemOnce(p)
	return false
}

// crossing returns the problem of a range with single ports or node ports in it that lead elsewhere, which may be
// none. Of many it names the first. The port that the range extends may be one of its own.
func (u *update) crossing(f *Frontend) (problem model.Problem, some bool) {
	var first *Frontend
	n := 0
	consider := func(at Key) {
		single := u.frontends.holder(at).value
		if single.Service == f.Service && single.Key.Protocol == f.Protocol && single.Port == f.Port && !at.NodePort() {
			return
		}
		if n++; first == nil || at.Port < first.Key.Port {
			first = single
		}
	}
	singles := u.places[f.place()].singles
	for port := range singles {
		if f.Ports().Contains(port) {
			consider(f.within(port))
		}
	}
	if at, is := u.nodePortsAt(f.place()); is && u.places[at] != nil {
		for port := range u.places[at].singles {
			if _, before := singles[port]; !before && f.Ports().Contains(port) {
				consider(at.within(port))
			}
		}
	}
	if n == 0 {
		return problem, false
	}
	return crossed(f, first, n), true
}
