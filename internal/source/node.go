package source

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"sluice/internal/model"
)

// Node converts a Node.
func Node(in *v1.Node) *model.Node {
	r := NewReport(model.NodeObject(in.Name))
	out := &model.Node{
		Name:     in.Name,
		UID:      string(in.UID),
		IPs:      r.nodeIPs(in.Status.Addresses),
		PodCIDRs: r.podCIDRs(in),
		Zone:     intern(in.Labels[v1.LabelTopologyZone]),
		Leaving:  leaving(in),
	}
	out.Problems = r.List()
	return out
}

// autoscalerTaint is set by the cluster autoscaler before it removes a node.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

func leaving(in *v1.Node) string {
	if !in.DeletionTimestamp.IsZero() {
		return "the Node object is being deleted"
	}
	for i := range in.Spec.Taints {
		if in.Spec.Taints[i].Key == autoscalerTaint {
			return "the cluster autoscaler is about to remove the node (taint " + autoscalerTaint + ")"
		}
	}
	return ""
}

func (r *Report) nodeIPs(in []v1.NodeAddress) []netip.Addr {
	out := make([]netip.Addr, 0, len(in))
	for _, typ := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for i := range in {
			if in[i].Type != typ {
				continue
			}
			field := fmt.Sprintf("status.addresses[%d].address", i)
			if addr, ok := r.addr(field, in[i].Address, checkForwardable); ok {
				out = append(out, addr)
			}
		}
	}
	return distinct(out)
}

func (r *Report) podCIDRs(in *v1.Node) []netip.Prefix {
	cidrs := in.Spec.PodCIDRs
	if len(cidrs) == 0 && in.Spec.PodCIDR != "" {
		cidrs = []string{in.Spec.PodCIDR}
	}
	return prefixes("spec.podCIDRs", cidrs, r.Malformed)
}

// ServiceCIDR converts a ServiceCIDR.
func ServiceCIDR(in *networkingv1.ServiceCIDR) *model.ServiceCIDR {
	r := NewReport(model.Object{Kind: "ServiceCIDR", Name: in.Name})
	out := &model.ServiceCIDR{Name: in.Name, Prefixes: prefixes("spec.cidrs", in.Spec.CIDRs, r.Malformed)}
	out.Problems = r.List()
	return out
}
