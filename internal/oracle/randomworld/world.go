package randomworld

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/oracle"
	"sluice/internal/plan"
)

// Random returns a world with a handful of Services.
func Random(rng *rand.Rand, topology Topology) oracle.World {
	d := drawer{rng, topology}
	w := oracle.World{Config: d.config(), Node: d.node(), HostIPs: d.hostIPs(), LocalRoutes: d.LocalRoutes}
	if !oneIn(rng, 8) {
		w.ServiceCIDRs = append(w.ServiceCIDRs, d.serviceCIDR("kubernetes"))
	}
	for range 2 + rng.IntN(6) {
		w = w.After(d.newService(w)...)
	}
	return w
}

// drawer draws objects at random from a topology.
type drawer struct {
	*rand.Rand
	Topology
}

func (d drawer) oneIn(n int) bool { return oneIn(d.Rand, n) }

func (d drawer) config() plan.Config {
	c := plan.Config{
		NodeName:      d.NodeName,
		MasqueradeBit: 14,
		MasqueradeAll: d.oneIn(12),
		NoExternalIPs: d.oneIn(12),
	}
	switch d.IntN(6) {
	case 0, 1:
		c.DetectLocal, c.ClusterCIDRs = plan.DetectClusterCIDR, slices.Clone(d.ClusterCIDRs)
		if d.oneIn(6) {
			c.ClusterCIDRs = some(d.Rand, c.ClusterCIDRs, 1)
		}
	case 2:
		c.DetectLocal = plan.DetectNodeCIDR
	case 3:
		if in := pick(d.Rand, d.LocalPods).Interface; in != "" {
			c.DetectLocal, c.BridgeInterface = plan.DetectBridgeInterface, in
		}
	case 4:
		if d.PodInterfacePrefix != "" {
			c.DetectLocal, c.InterfaceNamePrefix = plan.DetectInterfaceNamePrefix, d.PodInterfacePrefix
		}
	}
	c.NodePortAddresses = d.nodePortAddresses()
	return c
}

func (d drawer) nodePortAddresses() plan.NodePortAddresses {
	var a plan.NodePortAddresses
	switch d.IntN(6) {
	case 0:
		a.All = true
	case 3: // all of one family, and of the other one if nothing else is said of it
		a.Primary = d.oneIn(2)
		for _, ip := range some(d.Rand, d.NodeIPs, 1) {
			a.Prefixes = append(a.Prefixes, netip.PrefixFrom(ip, 0).Masked())
		}
	case 1:
		a.Primary = true
	case 2:
		a.Primary = d.oneIn(2)
		for _, ip := range some(d.Rand, d.NodeIPs, 1+d.IntN(2)) {
			a.Prefixes = append(a.Prefixes, netip.PrefixFrom(ip, ip.BitLen()-d.IntN(2)).Masked())
		}
	}
	return a
}

func (d drawer) node() *model.Node {
	n := &model.Node{
		Name:     d.NodeName,
		IPs:      slices.Clone(d.NodeIPs),
		PodCIDRs: slices.Clone(d.PodCIDRs),
		Zone:     pick(d.Rand, []string{"", "zone-1", "zone-1", "zone-2"}),
	}
	if d.oneIn(4) { // other addresses become the primary ones
		slices.Reverse(n.IPs)
	}
	return n
}

// hostIPs returns loopback and the addresses of the topology.
func (d drawer) hostIPs() []netip.Addr {
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	return slices.Concat(loopback, d.NodeIPs)
}

// fewerHostIPs leaves some addresses out, but neither loopback nor the first of
// a family.
func (d drawer) fewerHostIPs() []netip.Addr {
	return slices.DeleteFunc(d.hostIPs(), func(a netip.Addr) bool {
		if a.IsLoopback() {
			return false
		}
		first := a == addrsOf(model.FamilyOf(a), d.NodeIPs)[0]
		return !first && d.oneIn(2)
	})
}

func (d drawer) serviceCIDR(name string) *model.ServiceCIDR {
	c := &model.ServiceCIDR{Name: name, Prefixes: slices.Clone(d.ServiceCIDR)}
	if d.oneIn(6) {
		c.Prefixes = some(d.Rand, c.Prefixes, 1)
	}
	return c
}

// newService returns the events that add a Service and its slices; none if
// there is no free name or ClusterIP.
func (d drawer) newService(w oracle.World) []model.Event {
	name, ok := d.freeName(w)
	if !ok {
		return nil
	}
	s := d.service(w, name)
	if len(s.ClusterIPs) == 0 {
		return nil
	}
	events := []model.Event{model.SetService{Service: s}}
	if len(slicesOf(w, name)) > 0 && d.oneIn(2) {
		return events // its slices were there before it
	}
	return append(events, d.newSlices(w, s)...)
}

// freeName finds a name that no Service has. There are few, so that Services
// come back under names that were used before.
func (d drawer) freeName(w oracle.World) (model.Name, bool) {
	var free []model.Name
	for _, namespace := range []string{"blue", "red"} {
		for i := range 5 {
			name := model.Name{Namespace: namespace, Name: fmt.Sprintf("svc-%d", i)}
			if serviceNamed(w, name) == nil {
				free = append(free, name)
			}
		}
	}
	return pick(d.Rand, free), len(free) > 0
}

func serviceNamed(w oracle.World, name model.Name) *model.Service {
	for _, s := range w.Services {
		if s.Name == name {
			return s
		}
	}
	return nil
}
