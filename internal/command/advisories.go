package command

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/config"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/telemetry"
)

// advisoriesByAbout returns what the administrator should know and can mend, by what
// it is about.
func (p *proxy) advisoriesByAbout() map[telemetry.About][]model.Problem {
	file := p.configFile.Load()
	out := map[telemetry.About][]model.Problem{
		telemetry.AboutConfiguration: file.Advisories(),
		telemetry.AboutRestart:       file.Waiting(),
		telemetry.AboutNetwork:       p.upkeep.advisories(),
	}
	if p.client == nil {
		out[telemetry.AboutConfiguration] = append(out[telemetry.AboutConfiguration], unusedAPIServer(p.settings)...)
	}
	cfg := p.servers.settings.Load().Plan
	p.engine.Inspect(func(v engine.View) {
		out[telemetry.AboutNode] = nodeAdvisories(&cfg, v.State)
		out[telemetry.AboutConfiguration] = append(out[telemetry.AboutConfiguration], familyAdvisories(&cfg, v)...)
	})
	return out
}

// advisories returns all of them, in a stable order.
func (p *proxy) advisories() (all []model.Problem) {
	byAbout := p.advisoriesByAbout()
	for _, about := range telemetry.Abouts {
		all = append(all, byAbout[about]...)
	}
	return all
}

// decisiveAdvisories are those that bear on what happens to packets: the answers of
// explain would be others without them.
func (p *proxy) decisiveAdvisories() []model.Problem {
	byAbout := p.advisoriesByAbout()
	all := slices.Concat(byAbout[telemetry.AboutConfiguration], byAbout[telemetry.AboutRestart], byAbout[telemetry.AboutNode])
	p.engine.Inspect(func(v engine.View) {
		all = append(all, v.Desired.Problems["Node "+p.settings.Plan.NodeName]...)
	})
	return all
}

func (p *proxy) countAdvisories() map[telemetry.About]int {
	counts := map[telemetry.About]int{}
	for about, list := range p.advisoriesByAbout() {
		counts[about] = len(list)
	}
	return counts
}

// unusedAPIServer returns that a configured API server is not used, because there are
// manifests.
func unusedAPIServer(s *config.Settings) []model.Problem {
	field, value := "clientConnection.kubeconfig", s.Client.Connection.Kubeconfig
	if value == "" {
		field, value = "--master", s.Client.Master
	}
	if value == "" {
		return nil
	}
	return []model.Problem{{
		Object: "API server", Field: field,
		Reason: fmt.Sprintf("%s is not used: with --manifests, the proxy follows no API server", value),
		Remedy: "leave out --manifests to follow the API server, or the kubeconfig to follow the manifests",
	}}
}

// nodeAdvisories finds out whether manifests mean this node by another name: they name
// nodes, and none of them is this one. With an API server, plan reports a missing Node.
func nodeAdvisories(cfg *plan.Config, state *model.State) []model.Problem {
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
		Object: "Node " + cfg.NodeName, Field: "metadata.name",
		Reason: fmt.Sprintf("the manifests have neither a Node nor an endpoint of this name, but endpoints on other nodes, such as %s: no endpoint counts as local", other),
		Remedy: fmt.Sprintf("set --hostname-override to the name that the manifests have for this node, such as %s, or add its Node", other),
	}}
}

// familyAdvisories finds out whether the cluster CIDR lacks a family that Services
// have, so that pods are not recognised in it.
func familyAdvisories(cfg *plan.Config, v engine.View) (out []model.Problem) {
	if cfg.DetectLocal != plan.DetectClusterCIDR || len(cfg.ClusterCIDRs) == 0 {
		return nil // the configuration itself says so
	}
	for _, family := range cfg.Families() {
		if slices.ContainsFunc(cfg.ClusterCIDRs, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == family }) {
			continue
		}
		if name, ok := firstService(v.State, family); ok {
			out = append(out, model.Problem{
				Object: "Cluster CIDR", Field: "clusterCIDR",
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
