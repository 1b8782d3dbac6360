package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/answer/services"
	"sluice/internal/base/printable"
	"sluice/internal/base/spelling"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// maxAnswers is after how many answers the other ports of a Service are omitted.
const maxAnswers = 20

// resolver resolves a question to results, in a view of the engine.
type resolver struct {
	engine.View
	judge    *verdict.Judge
	question Question
	target   target
	source   netip.Addr // if the question names one
	port     uint16     // of the source, if it names that
	in       string
	nodeIPs  []netip.Addr
	isLocal  func(netip.Addr) (bool, error) // nil if unknown
}

// isRouteLocal reports whether an address is local by the routing table.
func (r *resolver) isRouteLocal(ip netip.Addr) bool {
	if r.isLocal == nil {
		return false
	}
	yes, err := r.isLocal(ip)
	return yes && err == nil
}

// isNodeIP reports whether an address is the node's, by its interfaces, its Node
// object or the routing table.
func (r *resolver) isNodeIP(ip netip.Addr) bool {
	return ip.IsLoopback() || slices.Contains(r.nodeIPs, ip) || r.isRouteLocal(ip)
}

// resolve returns one result for each packet that the question may mean. The error is an
// ErrQuestion.
func (r *resolver) resolve() (results []result, omitted int, err error) {
	r.nodeIPs = slices.Clone(r.State.HostIPs())
	if n := r.State.Node(); n != nil {
		r.nodeIPs = append(r.nodeIPs, n.IPs...)
	}
	switch to := r.target.key; {
	case r.target.service != (model.Name{}):
	case !to.IsValid():
		return r.resolveNodePort()
	case to.Port() == 0:
		results, omitted = r.resolveAllPorts(to.Addr())
		return results, omitted, nil
	default:
		return []result{r.resolveAddress(to.Addr(), to.Port(), cmp.Or(r.target.proto, model.TCP))}, 0, nil
	}
	if r.target.service.Namespace == "" {
		if err := r.findNamespace(); err != nil {
			return nil, 0, err
		}
	}
	results, omitted = r.resolveService()
	return results, omitted, nil
}

// findNamespace finds the Service that is asked by its name alone.
func (r *resolver) findNamespace() error {
	var found []model.Name
	for name := range r.State.Services() {
		if name.Name == r.target.service.Name {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, model.Name.Compare)
	switch len(found) {
	case 0: // those that are similar are looked for
	case 1:
		r.target.service = found[0]
	default:
		return badQuestion("%s have that name: ask for one of %s", printable.Count(len(found), "Service"), printable.List(found, model.Name.String))
	}
	return nil
}

// resolveNodePort resolves a node port, of whichever Services have it.
func (r *resolver) resolveNodePort() (results []result, omitted int, err error) {
	number, _ := r.target.number()
	var found []*model.Service
	for _, svc := range r.State.Services() {
		if slices.ContainsFunc(svc.Ports, func(p model.ServicePort) bool {
			return p.NodePort == number && (r.target.proto == 0 || r.target.proto == p.Protocol)
		}) {
			found = append(found, svc)
		}
	}
	slices.SortFunc(found, func(a, b *model.Service) int { return a.Name.Compare(b.Name) })
	for _, svc := range found {
		for i := range svc.Ports {
			if p := &svc.Ports[i]; p.NodePort == number && (r.target.proto == 0 || r.target.proto == p.Protocol) {
				results = append(results, r.resolvePort(svc, p)...)
			}
		}
	}
	if len(results) > 0 {
		return results, 0, nil
	}
	for _, family := range model.Families {
		if ip := r.nodeIP(family); ip.IsValid() {
			return []result{r.resolveAddress(ip, number, cmp.Or(r.target.proto, model.TCP))}, 0, nil
		}
	}
	return nil, 0, badQuestion("no Service has node port %d: ask for a Service, such as default/web, or an address, such as 10.96.0.1:80", number)
}

func (r *resolver) resolveService() (results []result, omitted int) {
	svc := r.State.Service(r.target.service)
	if svc == nil && isKind(r.target.service.Namespace) {
		r.target.service.Namespace = "default"
		svc = r.State.Service(r.target.service)
	}
	if svc == nil {
		return []result{r.unknownService()}, 0
	}
	for i := range svc.Ports {
		switch {
		case !r.target.means(&svc.Ports[i]):
		case len(results) >= maxAnswers:
			omitted++
		default:
			results = append(results, r.resolvePort(svc, &svc.Ports[i])...)
		}
	}
	if len(results) == 0 {
		results = append(results, r.unknownPort(svc))
	}
	return results, omitted
}

// service judges the Service that a question is about, or the ports of it that are asked for, for
// clients of all kinds. It returns nil if the question names a client or an address.
func (r *resolver) service(results []result) *verdict.Service {
	name := results[0].service
	svc := r.State.Service(name)
	if r.question.From != "" || r.target.key.IsValid() || svc == nil || slices.ContainsFunc(results, func(f result) bool { return f.service != name }) {
		return nil
	}
	evidence := r.Evidence(name)
	var asked []*plan.Frontend
	for _, f := range evidence.Frontends() {
		at := slices.IndexFunc(svc.Ports, func(p model.ServicePort) bool { return isOf(f, &p) && r.target.means(&p) })
		if at >= 0 && (f.Kind == plan.NodePort || r.target.service.Name != "" && !r.target.meansNodePort(&svc.Ports[at])) {
			asked = append(asked, f)
		}
	}
	if len(asked) == 0 { // which the answer is about
		return nil
	}
	out := r.judge.Frontends(asked)
	if r.target.port == "" && r.target.proto == 0 {
		out = r.judge.Service(name, asked)
	}
	return &out
}

// resolveAllPorts resolves all frontends at an address. If there are none, it resolves a
// packet to port 80, which tells why.
func (r *resolver) resolveAllPorts(to netip.Addr) (results []result, omitted int) {
	var keys []plan.Key
	onNode := r.Desired.Settings.HasNodePorts(to, r.isRouteLocal)
	for key := range r.Desired.Frontends {
		if key.Addr == to || onNode && key.NodePort() && key.Family() == model.FamilyOf(to) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return []result{r.resolveAddress(to, 80, cmp.Or(r.target.proto, model.TCP))}, 0
	}
	slices.SortFunc(keys, plan.Key.Compare)
	if len(keys) > maxAnswers {
		keys, omitted = keys[:maxAnswers], len(keys)-maxAnswers
	}
	for _, key := range keys {
		results = append(results, r.resolvePacket(to, key.Port, key.Protocol))
	}
	return results, omitted
}

func (r *resolver) setClient(f model.Family, p *plan.Packet) {
	d := r.Desired.Settings.Detector(f)
	if p.To.Addr.IsLoopback() { // only the node itself can send there
		p.From, p.Source = plan.NodeClient, p.To.Addr
		return
	}
	switch r.question.From {
	case "", plan.PodClient.String():
		if d.Enabled() {
			p.From = plan.PodClient
		}
	case plan.NodeClient.String():
		p.From, p.Source = plan.NodeClient, r.nodeIP(f)
	case plan.OutsideClient.String():
	default:
		p.Source, p.SourcePort = r.source, r.port
		p.From = r.Desired.Settings.Client(r.source, r.in, r.isNodeIP(r.source))
	}
}

// nodeIP returns an address of the node that others can reach.
func (r *resolver) nodeIP(f model.Family) netip.Addr {
	if n := r.State.Node(); n != nil && n.PrimaryIP(f).IsValid() {
		return n.PrimaryIP(f)
	}
	for _, ip := range r.nodeIPs {
		if model.FamilyOf(ip) == f && ip.IsGlobalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

// resolvePacket decides about a packet and collects what is known of its Service.
func (r *resolver) resolvePacket(to netip.Addr, port uint16, proto model.Protocol) result {
	p := plan.Packet{To: plan.Key{Addr: to, Port: port, Protocol: proto}, ToNode: r.isRouteLocal(to)}
	r.setClient(model.FamilyOf(to), &p)
	f := result{packet: p, said: cmp.Or(r.question.From, plan.PodClient.String()), in: r.in}
	f.detector = r.Desired.Settings.Detector(model.FamilyOf(to))
	for _, family := range model.Families {
		f.detectsOther = f.detectsOther || family != model.FamilyOf(to) && r.Desired.Settings.Detector(family).Enabled()
	}
	f.decision = r.Desired.Decide(p)
	if fe := f.decision.Frontend; fe != nil {
		f.verdict, f.answers = r.judge.Packet(&f.decision), r.judge.Answers
		r.attach(&f, fe.Service)
		f.others = otherFrontends(&f.evidence, fe)
	}
	return f
}

func (r *resolver) attach(f *result, name model.Name) {
	facts := services.Read(r.View, name)
	f.service, f.evidence, f.problems = name, facts.Evidence, facts.Problems
	if len(f.evidence.Slices) == 0 {
		for _, s := range r.State.Slices(model.Name{Namespace: name.Namespace}) {
			f.unlabelled = append(f.unlabelled, s.Name)
		}
	}
}

// otherFrontends returns the other frontends of a frontend's service port.
func otherFrontends(e *plan.Evidence, of *plan.Frontend) []*plan.Frontend {
	var out []*plan.Frontend
	for _, f := range e.Frontends() {
		if f != of && f.Port == of.Port && f.Protocol == of.Protocol {
			out = append(out, f)
		}
	}
	return out
}

// resolvePort resolves a service port, in each family that the Service and the
// client have.
func (r *resolver) resolvePort(svc *model.Service, port *model.ServicePort) []result {
	var out []result
	evidence := r.Evidence(svc.Name)
	for _, family := range model.Families {
		if r.source.IsValid() && model.FamilyOf(r.source) != family {
			continue
		}
		var probe plan.Packet
		r.setClient(family, &probe)
		f := r.bestFrontend(&evidence, port, family, probe.From)
		if f == nil {
			continue
		}
		to := f.Addr
		if f.NodePort() {
			to = r.Desired.Settings.NodePortAddrs(family)[0]
		}
		found := r.resolvePacket(to, f.Key.Port, f.Protocol)
		if r.question.From == plan.OutsideClient.String() && f.Kind == plan.ClusterIP {
			found.suggestions = append(found.suggestions, suggestion{kind: onlyClusterIP, service: svc.Name})
		}
		out = append(out, found)
	}
	return out
}

// bestFrontend returns the frontend of a service port that such a client would use.
func (r *resolver) bestFrontend(e *plan.Evidence, port *model.ServicePort, family model.Family, from plan.Client) (best *plan.Frontend) {
	kinds := []plan.Kind{plan.ClusterIP, plan.LoadBalancerIP, plan.ExternalIP, plan.NodePort}
	switch {
	case r.target.meansNodePort(port):
		kinds = kinds[3:]
	case from == plan.OutsideClient && r.question.From != "" && r.question.From != plan.PodClient.String(): // not a pod that is not recognised
		kinds = append(kinds[1:], plan.ClusterIP)
	}
	for _, f := range e.Frontends() {
		if !isOf(f, port) || f.IsRange() || f.Family() != family || f.NodePort() && len(r.Desired.Settings.NodePortAddrs(family)) == 0 {
			continue
		}
		if at := slices.Index(kinds, f.Kind); at >= 0 && (best == nil || at < slices.Index(kinds, best.Kind)) {
			best = f
		}
	}
	return best
}

func isOf(f *plan.Frontend, port *model.ServicePort) bool {
	return f.Port == port.Name && f.Protocol == port.Protocol
}

// resolveAddress resolves an address and port. If no frontend is there, it adds
// suggestions.
func (r *resolver) resolveAddress(to netip.Addr, port uint16, proto model.Protocol) result {
	f := r.resolvePacket(to, port, proto)
	if f.decision.Frontend != nil || f.decision.Cause == plan.NoIPv6 {
		return f
	}
	owner := r.suggest(&f, to, port)
	if owner != (model.Name{}) {
		r.attach(&f, owner)
	}
	return f
}

// suggest searches all Services for what is close to an address without a frontend.
// It returns the Service that has the address, if there is one.
func (r *resolver) suggest(f *result, to netip.Addr, port uint16) (owner model.Name) {
	onNode := r.isNodeIP(to)
	for name, svc := range r.State.Services() {
		if hasAddress(svc, to) {
			owner = name
			if f.decision.Cause != plan.NodePortsOnly {
				f.suggestions = append(f.suggestions, suggestion{kind: hasPorts, service: name, ports: svc.Ports})
			}
		}
		for _, p := range svc.Ports {
			if onNode && p.NodePort == port {
				f.suggestions = append(f.suggestions, r.suggestNodePort(svc, p, to, f.packet.To.Protocol))
			}
		}
		if slices.ContainsFunc(r.State.Slices(name), func(s *model.Slice) bool { return hasEndpoint(s, to) }) {
			f.suggestions = append(f.suggestions, suggestion{kind: isEndpoint, service: name})
		}
	}
	f.sortSuggestions()
	return owner
}

func (f *result) sortSuggestions() {
	slices.SortFunc(f.suggestions, func(a, b suggestion) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.service.Compare(b.service))
	})
}

func (r *resolver) suggestNodePort(svc *model.Service, p model.ServicePort, to netip.Addr, proto model.Protocol) suggestion {
	family := model.FamilyOf(to)
	ofFamily := func(ip netip.Addr) bool { return model.FamilyOf(ip) == family }
	s := suggestion{service: svc.Name, ports: []model.ServicePort{{Name: p.Name, Port: p.NodePort, NodePort: p.NodePort, Protocol: p.Protocol}}}
	switch {
	case p.Protocol != proto:
		s.kind = otherProtocol
	case !slices.ContainsFunc(svc.ClusterIPs, ofFamily):
		s.kind, s.ips = otherFamily, svc.ClusterIPs
	case to.IsLoopback():
		s.kind = unservedLoopback
	default:
		s.kind, s.ips = nodePortIPs, r.Desired.Settings.NodePortAddrs(family)
	}
	return s
}

func hasAddress(svc *model.Service, ip netip.Addr) bool {
	return slices.Contains(svc.ClusterIPs, ip) || slices.Contains(svc.LoadBalancerIPs, ip) || slices.Contains(svc.ExternalIPs, ip)
}

func hasEndpoint(s *model.Slice, ip netip.Addr) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return e.Addr == ip })
}

func (r *resolver) unknownService() result {
	anywhere := r.target.service.Namespace == ""
	if anywhere {
		r.target.service.Namespace = "default"
	}
	f := result{undecided: noSuchService, service: r.target.service, said: cmp.Or(r.question.From, plan.PodClient.String())}
	f.problems = services.Read(r.View, r.target.service).Problems
	if len(r.State.Slices(r.target.service)) > 0 {
		f.suggestions = append(f.suggestions, suggestion{kind: orphanSlices, service: r.target.service})
	}
	for name := range r.State.Services() {
		if name.Name == r.target.service.Name {
			f.suggestions = append(f.suggestions, suggestion{kind: sameName, service: name})
		} else if near(name, r.target.service) || anywhere && spelling.Similar(r.target.service.Name, name.Name) {
			f.suggestions = append(f.suggestions, suggestion{kind: similarName, service: name})
		}
	}
	f.sortSuggestions()
	f.suggestions = f.suggestions[:min(len(f.suggestions), maxSuggestions)]
	return f
}

// maxSuggestions is how many Services are suggested instead of an unknown one.
const maxSuggestions = 3

// near reports whether a Service was probably meant by another name.
func near(name, asked model.Name) bool {
	return name.Namespace == asked.Namespace && spelling.Similar(asked.Name, name.Name) ||
		name.Name == asked.Name && spelling.Similar(asked.Namespace, name.Namespace)
}

// conflict returns a frontend of the question that another Service has, nil if there is none.
func (r *resolver) conflict(svc *model.Service) *plan.Lost {
	evidence := r.Evidence(svc.Name)
	for _, lost := range evidence.Lost() {
		asked := func(p model.ServicePort) bool { return isOf(lost.Frontend, &p) && r.target.means(&p) }
		if slices.ContainsFunc(svc.Ports, asked) {
			return &lost
		}
	}
	return nil
}

// unknownPort returns the result for a Service without the port of the question. If
// that is a number, the result is for a packet to it.
func (r *resolver) unknownPort(svc *model.Service) result {
	taken := r.conflict(svc)
	number, ok := r.target.number()
	ok = ok && taken == nil // the other Service's packets are not the question
	if r.Desired.Settings.NodePortsOnly && !ok && len(svc.Ports) > 0 {
		number, ok = svc.Ports[0].Port, true
	}
	for _, ip := range svc.ClusterIPs {
		if fits := !r.source.IsValid() || model.FamilyOf(ip) == model.FamilyOf(r.source); ok && fits {
			return r.resolveAddress(ip, number, cmp.Or(r.target.proto, model.TCP))
		}
	}
	f := result{undecided: plan.NoSuchPort.String(), said: cmp.Or(r.question.From, plan.PodClient.String())}
	r.attach(&f, svc.Name)
	f.taken = taken
	kind := hasPorts
	if r.target.port == "" || len(svc.Ports) == 0 {
		kind = noPorts
	}
	f.suggestions = append(f.suggestions, suggestion{kind: kind, service: svc.Name, ports: svc.Ports})
	return f
}
