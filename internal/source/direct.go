package source

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"sluice/internal/model"
)

// directAnnotations are ours, and those of other proxies that ask for the same: whether clients outside are
// answered by the node with their endpoint. If they contradict each other, the first one counts.
var directAnnotations = []struct {
	key   string
	words map[string]bool
	usage string
}{
	{ownForwarding, map[string]bool{"direct": true, "masquerade": false}, "use direct or masquerade"},
	{"service.antrea.io/load-balancer-mode", map[string]bool{"dsr": true, "nat": false},
		"use dsr or nat, or sluice/forwarding instead"},
	{"kube-router.io/service.dsr", map[string]bool{"tunnel": true}, "use tunnel, or sluice/forwarding instead"},
	{"service.cilium.io/forwarding-mode", map[string]bool{"dsr": true, "snat": false},
		"use dsr or snat, or sluice/forwarding instead"},
}

// direct returns the annotation of a Service that asks for direct return, "" for none.
func (r *Report) direct(annotations map[string]string) (by string) {
	chosen, first := false, ""
	for _, a := range directAnnotations {
		word, ok := annotations[a.key]
		if !ok {
			continue
		}
		direct, known := a.words[strings.ToLower(word)]
		switch {
		case !known:
			r.unusable(annotationField(a.key), a.usage, "%q is no way to forward packets", word)
		case first == "":
			chosen, first = direct, a.key
		case direct != chosen:
			r.contradiction(a.key, word, first)
		}
	}
	if chosen {
		return first
	}
	return ""
}

// Peer converts the Node of another machine. What is wrong with it is for its own proxy to report.
func Peer(in *v1.Node) *model.Peer {
	r := NewReport(model.NodeObject(in.Name))
	return &model.Peer{Name: in.Name, IPs: r.nodeIPs(in.Status.Addresses)}
}
