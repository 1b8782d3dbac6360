package nodeproblem

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// NodeName finds out whether manifests mean this node by another name: they name nodes, and
// none of them is this one. With an API server, plan reports a missing Node.
func NodeName(cfg *plan.Config, state *model.State) []model.Problem {
	if cfg.RequireNode || state.Node() != nil {
		return nil
	}
	other := ""
	for name := range state.Services() {
		for _, s := range state.Slices(name) {
			for i := range s.Endpoints {
				switch node := s.Endpoints[i].Node; {
				case node == cfg.NodeName:
					return nil
				case node != "" && (other == "" || node < other):
					other = node
				}
			}
		}
	}
	if other == "" {
		return nil
	}
	return []model.Problem{{
		Object: model.NodeObject(cfg.NodeName), Field: "metadata.name",
		Reason: fmt.Sprintf("the manifests have neither a Node nor an endpoint of this name, but endpoints on other nodes, such as %s: no endpoint counts as local", other),
		Remedy: fmt.Sprintf("set --hostname-override to the name that the manifests have for this node, such as %s, or add its Node", other),
	}}
}

// ClusterCIDR finds out whether pods are not recognised by the cluster CIDR: it lacks a family
// that Services have, or no endpoint has an address in it.
func ClusterCIDR(cfg *plan.Config, state *model.State) (out []model.Problem) {
	if cfg.DetectLocal != plan.DetectClusterCIDR || len(cfg.ClusterCIDRs) == 0 {
		return nil // the configuration itself says so
	}
	for _, family := range cfg.Families() {
		i := slices.IndexFunc(cfg.ClusterCIDRs, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == family })
		if i >= 0 {
			out = append(out, elsewhere(cfg.ClusterCIDRs[i], cfg.NodeName, state)...)
		} else if name, ok := firstService(state, family); ok {
			out = append(out, model.Problem{
				Object: model.Object{Kind: "Cluster CIDR"}, Field: "clusterCIDR",
				Reason: fmt.Sprintf("it has no %s range, but Service %s has an %s address: %s traffic from pods is not recognised", family, name, family, family),
				Remedy: fmt.Sprintf("add the %s range of the pods to clusterCIDR (--cluster-cidr)", family),
			})
		}
	}
	return out
}

// firstService returns the first Service, by name, with a ClusterIP of a family.
func firstService(state *model.State, family model.Family) (first model.Name, found bool) {
	for name, s := range state.Services() {
		if slices.ContainsFunc(s.ClusterIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == family }) &&
			(!found || name.String() < first.String()) {
			first, found = name, true
		}
	}
	return first, found
}

// elsewhere finds out whether all pods have addresses outside of a range. Only some of the
// endpoints are certainly pods, and not programs with the address of their node: those on
// this node with another address, and those on a node of which there are several addresses.
func elsewhere(in netip.Prefix, node string, state *model.State) []model.Problem {
	own := OwnAddresses(state)
	addresses := map[string]map[netip.Addr]struct{}{} // by node
	var example netip.Addr
	total, pods := 0, false
	for name := range state.Services() {
		for _, s := range state.Slices(name) {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				switch {
				case e.Addr.Is4() != in.Addr().Is4() || own(e.Addr):
					continue
				case in.Contains(e.Addr):
					return nil
				}
				on := addresses[e.Node]
				if on == nil {
					on = map[netip.Addr]struct{}{}
					addresses[e.Node] = on
				}
				if _, known := on[e.Addr]; known {
					continue
				}
				on[e.Addr] = struct{}{}
				total++
				if pods = pods || e.Node != "" && (e.Node == node || len(on) > 1); !example.IsValid() || e.Addr.Less(example) {
					example = e.Addr
				}
			}
		}
	}
	if !pods {
		return nil
	}
	return []model.Problem{{
		Object: model.Object{Kind: "Cluster CIDR"}, Field: "clusterCIDR",
		Reason: fmt.Sprintf("none of the %d addresses of endpoints is in %s, such as %s: pods count as clients outside, and their connections are masqueraded", total, in, example),
		Remedy: "set clusterCIDR (--cluster-cidr) to the range that pods have their addresses from",
	}}
}

// OwnAddresses returns a function that reports whether an address is this node's.
func OwnAddresses(state *model.State) func(netip.Addr) bool {
	own := map[netip.Addr]struct{}{}
	for _, ip := range state.HostIPs() {
		own[ip] = struct{}{}
	}
	if n := state.Node(); n != nil {
		for _, ip := range n.IPs {
			own[ip] = struct{}{}
		}
	}
	return func(ip netip.Addr) bool { _, is := own[ip]; return is }
}
