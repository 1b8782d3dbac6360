package check

import (
	"maps"
	"net/netip"
	"slices"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// checkServices finds the Services that would not be served as they are now.
func (r *Report) checkServices(o *Options, desired *plan.Desired) {
	before := len(r.Findings)
	for _, p := range o.Refused {
		r.add(Todo, p.Object.String(), p.Remedy, "it would not be used: %s", p.What())
	}
	for _, object := range slices.SortedFunc(maps.Keys(desired.Problems), model.Object.Compare) {
		r.addAll(Todo, desired.Problems[object])
	}
	names := slices.SortedFunc(maps.Keys(o.State.Services()), model.Name.Compare)
	for _, name := range names {
		r.checkService(o.State, o.State.Service(name))
	}
	r.checkNodePorts(o, names)
	r.checkAffinity(o, names)
	switch {
	case len(r.Findings) > before:
	case len(r.InPlace) == 0:
		r.add(Fine, "Services", "", "all of them would be served")
	default:
		r.add(Fine, "Services", "", "all of them are served as by the kube-proxy in place")
	}
	r.noteOpen(o, desired)
}

// noteOpen names the Services whose source ranges leave some of their addresses open, with every kube-proxy.
func (r *Report) noteOpen(o *Options, desired *plan.Desired) {
	names := map[model.Name]struct{}{}
	for _, f := range desired.Frontends {
		if f.OpenBeside(o.State.Service(f.Service)) {
			names[f.Service] = struct{}{}
		}
	}
	if len(names) == 0 {
		return
	}
	open := slices.SortedFunc(maps.Keys(names), model.Name.Compare)
	r.add(Note, "source ranges", "if the ranges are to restrict those clients, too, set the annotation sluice/source-ranges-apply-to: all (docs/security.md)",
		"everybody may connect to node ports and external IPs of Services with loadBalancerSourceRanges, which are for load balancer IPs: %s",
		printable.List(open, model.Name.String))
}

func (r *Report) checkService(state *model.State, s *model.Service) {
	subject := model.ServiceObject(s.Name).String()
	asksFor := func(what, page string) {
		r.add(Todo, subject, "remove the annotation, unless that is what you want ("+page+")",
			"an annotation asks for %s, which upstream's kube-proxy ignores and this one uses", what)
	}
	if s.AlgorithmChosen {
		asksFor("the algorithm "+s.Algorithm.String(), "docs/algorithms.md")
	}
	if i := slices.IndexFunc(s.Ports, func(p model.ServicePort) bool { return len(p.Ranges) > 0 }); i >= 0 {
		asksFor("the ports "+s.Ports[i].Ranges[0].String(), "docs/ranges.md")
	}
	if s.PassThrough {
		asksFor("packets to be left alone for which there is no endpoint", "docs/failover.md")
	}
	if s.FilterAll {
		asksFor("source ranges that restrict the clients of node ports and external IPs", "docs/security.md")
	}
	for _, slice := range state.Slices(s.Name) {
		if slice.Weight != nil {
			r.add(Todo, model.SliceObject(slice.Name).String(), "remove the annotation, unless that is what you want (docs/algorithms.md)",
				"an annotation gives its endpoints the weight %d, which upstream's kube-proxy ignores and this one uses", *slice.Weight)
		}
	}
	both := func(ip netip.Addr) bool { return slices.Contains(s.LoadBalancerIPs, ip) }
	if s.Filtered && slices.ContainsFunc(s.ExternalIPs, both) && r.replaces(func(m dataplane.Mode) bool { return m.UnfilteredExternalIPs }) {
		r.add(Todo, subject, "add the ranges of all clients to spec.loadBalancerSourceRanges",
			"an address is both an external IP and a load balancer IP: the source ranges apply to it, and did not in upstream's iptables mode")
	}
}

// checkNodePorts compares the addresses that node ports answer on.
func (r *Report) checkNodePorts(o *Options, names []model.Name) {
	var with []model.Name
	for _, name := range names {
		if slices.ContainsFunc(o.State.Service(name).Ports, func(p model.ServicePort) bool { return p.NodePort != 0 }) {
			with = append(with, name)
		}
	}
	if len(with) == 0 {
		return
	}
	list := printable.List(with, model.Name.String)
	at := o.Settings.Plan.NodePortAddresses
	if r.replaces(func(m dataplane.Mode) bool { return !m.Configuration.PrimaryNodePorts }) && !at.AllOf(model.IPv4) && !at.AllOf(model.IPv6) {
		r.add(Todo, "node ports", "set nodePortAddresses: [all], or see that clients use the addresses that are configured",
			"they would answer on some addresses of the node only, and upstream's iptables and ipvs modes serve all by default: %s", list)
	}
	if r.replaces(func(m dataplane.Mode) bool { return m.Configuration.LocalhostNodePorts }) && len(at.Loopback) == 0 && o.Settings.Mode.BesideIPTables {
		r.add(Note, "node ports", "if a program on the node uses them there, add the word localhost to nodePortAddresses (docs/userspace.md)",
			"they would not answer on 127.0.0.1, where upstream's iptables mode serves them: %s", list)
	}
}

func (r *Report) checkAffinity(o *Options, names []model.Name) {
	var with []model.Name
	for _, name := range names {
		if o.State.Service(name).Affinity != 0 {
			with = append(with, name)
		}
	}
	if len(with) > 0 && len(r.InPlace) > 0 {
		r.add(Note, "session affinity", "", "it is not taken over: a client may get another endpoint once, of %s", printable.List(with, model.Name.String))
	}
}
