package diff

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// compareNode compares the settings of the node.
func compareNode(old, new *plan.Desired) []Change {
	a, b := &old.Settings, &new.Settings
	var c changes
	for _, f := range model.Families {
		c.value(fmt.Sprintf("%v node ports answer on", f), nodePortText(a, f), nodePortText(b, f))
	}
	c.addresses("node port addresses", a.NodePortIPs, b.NodePortIPs)
	c.addresses("loopback node port addresses", a.LoopbackIPs, b.LoopbackIPs)
	c.addresses("ClusterIPs whose ports are refused", bare(old, new), bare(new, old))
	c.prefixes("service CIDRs", a.ServiceCIDRs, b.ServiceCIDRs)
	for _, f := range model.Families {
		c.value(fmt.Sprintf("%v pods are recognised by", f), a.Detector(f).Text(), b.Detector(f).Text())
	}
	c.value("masquerade mark", fmt.Sprintf("%#x", a.MasqueradeMark), fmt.Sprintf("%#x", b.MasqueradeMark))
	c.value("invalid packets are dropped", fmt.Sprint(a.DropInvalid), fmt.Sprint(b.DropInvalid))
	return c
}

func nodePortText(s *plan.Settings, f model.Family) string {
	if s.NodePortAll(f) {
		return "every local address"
	}
	return "chosen addresses"
}

// bare returns the ClusterIPs that one plan has and another has not, without those
// that are added or removed with a frontend.
func bare(of, other *plan.Desired) []netip.Addr {
	shown := map[netip.Addr]bool{}
	for k := range of.Frontends {
		if _, both := other.Frontends[k]; !both {
			shown[k.Addr] = true
		}
	}
	var out []netip.Addr
	for ip := range of.ClusterIPs {
		if _, both := other.ClusterIPs[ip]; !both && !shown[ip] {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (r *Report) compareHealthChecks(old, new *plan.Desired) {
	var c changes
	names := maps.Clone(old.HealthChecks)
	if names == nil {
		names = map[model.Name]plan.HealthCheck{}
	}
	maps.Copy(names, new.HealthChecks)
	for _, name := range slices.SortedFunc(maps.Keys(names), model.Name.Compare) {
		c.value(name.String(), healthText(old, name), healthText(new, name))
	}
	r.HealthChecks = c
}

func healthText(d *plan.Desired, name model.Name) string {
	h, there := d.HealthChecks[name]
	if !there {
		return "none"
	}
	return fmt.Sprintf("port %d, endpoints on this node: %d", h.Port, h.LocalEndpoints)
}
