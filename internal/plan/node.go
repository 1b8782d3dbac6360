package plan

import (
	"fmt"
	"slices"

	"sluice/internal/model"
)

// Eligibility is whether load balancers should send new connections to this node.
type Eligibility struct {
	// Reason is why they should not; "" if they should.
	Reason string
	// Starting says that this is normal while a node starts: it has no Node
	// object yet.
	Starting bool
}

// eligibility depends on the current Node object only, not on earlier ones.
func eligibility(cfg *Config, node *model.Node) Eligibility {
	switch {
	case node != nil && node.Leaving != "":
		return Eligibility{Reason: node.Leaving}
	case lacksPodCIDR(cfg, node):
		return Eligibility{Reason: "the proxy waits for the pod CIDR of the node"}
	case node == nil && cfg.RequireNode:
		return Eligibility{Reason: fmt.Sprintf("there is no Node object named %q", cfg.NodeName), Starting: true}
	}
	return Eligibility{}
}

// lacksPodCIDR reports whether pods are detected by the node's pod CIDRs, which
// are not known.
func lacksPodCIDR(cfg *Config, node *model.Node) bool {
	return cfg.DetectLocal == DetectNodeCIDR && (node == nil || len(node.PodCIDRs) == 0)
}

// nodeReports returns the problems of objects other than Services and slices.
func nodeReports(cfg *Config, state *model.State) []report {
	var out []report
	if problems := nodeProblems(cfg, state.Node()); len(problems) > 0 {
		out = append(out, report{object: model.NodeObject(cfg.nodeObject(state.Node())), problems: problems})
	}
	for _, c := range state.ServiceCIDRs() {
		if len(c.Problems) > 0 {
			out = append(out, report{object: model.Object{Kind: "ServiceCIDR", Name: c.Name}, problems: c.Problems})
		}
	}
	return out
}

// nodeObject returns the name of the Node object, whether it exists or not.
func (cfg *Config) nodeObject(node *model.Node) string {
	if node != nil {
		return node.Name
	}
	return cfg.NodeName
}

// nodeProblems returns what is wrong with the Node object, and what is missing.
func nodeProblems(cfg *Config, node *model.Node) []model.Problem {
	var problems []model.Problem
	if node != nil {
		problems = slices.Clone(node.Problems)
	} else if cfg.RequireNode {
		problems = append(problems, model.Problem{
			Object: model.NodeObject(cfg.NodeName),
			Field:  "metadata.name",
			Reason: "there is no Node object of this name: its addresses, its zone and its pod CIDRs are not known",
			Remedy: "see that the kubelet registers the node, or set --hostname-override to the name that it has in the cluster",
		})
	}
	if lacksPodCIDR(cfg, node) {
		problems = append(problems, model.Problem{
			Object: model.NodeObject(cfg.nodeObject(node)),
			Field:  "spec.podCIDRs",
			Reason: "waiting for it: until it is there, detect-local-mode NodeCIDR cannot recognise traffic from pods",
			Remedy: "see that the controller manager allocates node CIDRs, or set another --detect-local-mode",
		})
	}
	return problems
}
