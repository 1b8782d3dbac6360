package explain

import (
	"context"
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/internal/plan"
)

// origin returns where the connection of a question comes from, and makes the question one
// about a packet from there. Elsewhere is not nil if that is an address that nobody here has.
func (e *Explainer) origin(q *Question) (node experiment.Namespace, elsewhere, err error) {
	if q.NetNS != "" {
		if q.From != "" {
			return node, nil, badQuestion("--from and --netns both say where the connection comes from: leave one out")
		}
		node, err = namespaced(q)
		return node, nil, err
	}
	switch q.From {
	case "", plan.NodeClient.String():
		q.From = plan.NodeClient.String()
		return node, nil, nil
	case plan.PodClient.String(), plan.OutsideClient.String():
		return node, nil, badQuestion("--try cannot send from any %s client: name a pod by its address (--from) or its network namespace (--netns), or use --from node", q.From)
	}
	from, err := parseSource(q.From)
	if err != nil {
		return node, nil, nil // which is told of any question
	}
	ns, err := experiment.Having(from.Addr())
	if err == nil {
		return ns, nil, nil
	}
	if e.IsLocal != nil {
		if local, lerr := e.IsLocal(from.Addr()); local && lerr == nil {
			return node, nil, nil
		}
	}
	return node, badQuestion("--try: %v (use --netns for a namespace elsewhere, or --from node)", err), nil
}

// namespaced opens the network namespace of a question, and takes an address of it for the
// client's.
func namespaced(q *Question) (experiment.Namespace, error) {
	ns, err := experiment.Open(q.NetNS)
	if err != nil {
		return ns, badQuestion("--netns: %v", err)
	}
	families := model.Families[:]
	if t, err := parseTarget(q.To); err == nil && t.key.Addr().IsValid() {
		families = []model.Family{model.FamilyOf(t.key.Addr())}
	}
	for _, f := range families {
		if addr := ns.Address(f); addr.IsValid() {
			q.From = addr.String()
			return ns, nil
		}
	}
	ns.Close()
	return experiment.Namespace{}, badQuestion("--netns: %q has no address to connect from", q.NetNS)
}

// try opens a connection to the first address of a reply, and compares what happens with what
// the answer predicts.
func (e *Explainer) try(ctx context.Context, reply *Reply, results []result, from experiment.Namespace) {
	for i := range results {
		a, to := &reply.Answers[i], results[i].packet.To
		if !to.Addr.IsValid() || to.Port == 0 {
			continue
		}
		a.Tried = e.Try(ctx, experiment.Attempt{To: netip.AddrPortFrom(to.Addr, to.Port), Protocol: to.Protocol, From: from, Relayed: results[i].relayed()})
		a.Tried.HandedTo, _ = results[i].handedTo(a.Tried.Client)
		a.Tried.Compare(a.Verdict)
		if silence := to.Protocol == model.UDP && a.Tried.Outcome == experiment.Silent; !silence {
			reply.Flows = a.Tried.Outcome == experiment.Answered
		}
		return
	}
	reply.Flows = false
}

// handedTo returns the node that packets of a client are handed to, "" if that depends on its port, and whether they are
// handed on.
func (r *result) handedTo(client netip.AddrPort) (node string, handed bool) {
	d := r.decision
	if client.IsValid() {
		d.Packet.Source, d.Packet.SourcePort = client.Addr(), client.Port()
	}
	way, direct := d.Way()
	if !direct || way.Here || way.Ordinary && way.Node != "" {
		return "", false
	}
	return way.Node, true
}

// leaveUntried says of the first packet that is handed to another node that it cannot be tried from here, and reports
// whether there is one.
func leaveUntried(reply *Reply, results []result) bool {
	for i := range results {
		node, handed := results[i].handedTo(netip.AddrPort{})
		if !handed {
			continue
		}
		to, next := results[i].packet.To, "node "+node
		if node == "" {
			next = "the node that the client's port chooses"
		}
		r := &experiment.Result{
			Outcome: experiment.Untried, From: experiment.Namespace{}.String(), To: netip.AddrPortFrom(to.Addr, to.Port), Protocol: to.Protocol.String(), HandedTo: node,
			Error:  "this node hands packets of clients outside to " + next + ", and cannot send one as such a client",
			Remedy: "try it from the client; whether endpoints answer, try on their nodes with --from node",
		}
		r.Compare(reply.Answers[i].Verdict)
		reply.Answers[i].Tried, reply.Flows = r, false
		return true
	}
	return false
}

// tried adds what a connection showed.
func (t *text) tried(r *experiment.Result) {
	if r == nil {
		return
	}
	t.Line("TRIED from %s: %s", r.From, r)
	if r.Expected {
		t.row("it means", "%s", r.Meaning)
	} else {
		t.row("IT MEANS", "%s", r.Meaning)
	}
	if r.Remedy != "" {
		t.row("  what to do", "%s", r.Remedy)
	}
}
