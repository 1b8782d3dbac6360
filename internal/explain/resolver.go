package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// result is all that is known of one packet. Nothing in it belongs to the
// engine: it may be used when the view is gone.
type result struct {
	packet   plan.Packet
	said     string // how the sender was named in the question
	in       string // the interface it arrives through, if that is known
	detector plan.Detector
	// undecided is why there is no decision: nothing is known that a packet could go
	// to. "" if there is one.
	undecided string
	decision  plan.Decision
	service   model.Name // whose frontend or ClusterIP it is, empty for nobody's
	evidence  plan.Evidence
	problems  []model.Problem // of the Service and its slices
	// others are the other frontends of the service port.
	others []*plan.Frontend
	// hints tell of things that are nearly what was asked for.
	suggestions []suggestion
}

// hint is something that is nearly what was asked for.
type suggestion struct {
	kind suggestionKind
	// What it is about; which of these are set depends on the kind.
	service model.Name
	ports   []model.ServicePort
	ips     []netip.Addr
	field   plan.Kind
}

type suggestionKind uint8

const (
	hasPorts         suggestionKind = iota // the Service of the address has these ports
	otherProtocol                          // the node port is there for another protocol
	sameName                               // a Service of that name is in another namespace
	isEndpoint                             // the address is an endpoint of the Service
	otherFamily                            // the node port is there for the other family
	nodePortIPs                            // the node port is the Service's, but answers elsewhere
	orphanSlices                           // there are slices for a Service that is not known
	onlyClusterIP                          // the Service has no frontend for talkers from outside
	noPorts                                // nothing of the Service can be used
	unservedLoopback                       // loopback is not an address for node ports
)

// maxAnswers is after how many answers the other ports of a Service are left
// out.
const maxAnswers = 20

// resolver looks things up in a view.
type resolver struct {
	engine.View
	question Question
	target   target
	source   netip.Addr // if the question names one
	in       string
	nodeIPs  []netip.Addr
	isLocal  func(netip.Addr) (bool, error) // nil if that cannot be asked
}

// local tells whether the routing table calls an address local, as far as it can
// be asked.
func (r *resolver) isRouteLocal(ip netip.Addr) bool {
	if r.isLocal == nil {
		return false
	}
	yes, err := r.isLocal(ip)
	return yes && err == nil
}

// onNode tells whether an address is the node's: one that it is known by, or one by
// a route.
func (r *resolver) isNodeIP(ip netip.Addr) bool {
	return ip.IsLoopback() || slices.Contains(r.nodeIPs, ip) || r.isRouteLocal(ip)
}

// look finds what there is to say to a question: one result for each packet
// that may be meant.
func (r *resolver) resolve() (results []result, omitted int) {
	r.nodeIPs = slices.Clone(r.State.HostIPs())
	if n := r.State.Node(); n != nil {
		r.nodeIPs = append(r.nodeIPs, n.IPs...)
	}
	if r.target.service == (model.Name{}) {
		return []result{r.resolveAddress(r.target.key.Addr(), r.target.key.Port(), cmp.Or(r.target.proto, model.TCP))}, 0
	}
	svc := r.State.Service(r.target.service)
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

// sender fills in who sends a packet to a family.
func (r *resolver) setClient(f model.Family, p *plan.Packet) {
	d := r.Desired.Settings.Detector(f)
	if p.To.Addr.IsLoopback() { // nobody else can send there
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
		p.Source = r.source
		p.From = r.Desired.Settings.Client(r.source, r.in, r.isNodeIP(r.source))
	}
}

// nodeIP is an address of the node that others can reach.
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

// find decides about a packet and gathers what is known of its Service.
func (r *resolver) resolvePacket(to netip.Addr, port uint16, proto model.Protocol) result {
	p := plan.Packet{To: plan.Key{Addr: to, Port: port, Protocol: proto}, ToNode: r.isRouteLocal(to)}
	r.setClient(model.FamilyOf(to), &p)
	f := result{packet: p, said: cmp.Or(r.question.From, plan.PodClient.String()), in: r.in}
	f.detector = r.Desired.Settings.Detector(model.FamilyOf(to))
	f.decision = r.Desired.Decide(p)
	if fe := f.decision.Frontend; fe != nil {
		r.attach(&f, fe.Service)
		f.others = otherFrontends(&f.evidence, fe)
	}
	return f
}

// attach adds what is known of a Service.
func (r *resolver) attach(f *result, service model.Name) {
	f.service = service
	f.evidence = r.Evidence(service)
	f.problems = append(f.problems, r.refused(service)...)
	f.problems = append(f.problems, r.Desired.Problems["Service "+service.String()]...)
	for _, s := range f.evidence.Slices {
		f.problems = append(f.problems, r.Desired.Problems["EndpointSlice "+s.Name.String()]...)
	}
}

// refused is why a Service, or a newer version of it, was not taken over.
func (r *resolver) refused(service model.Name) []model.Problem {
	var out []model.Problem
	for _, p := range r.Desired.Refused {
		if p.Object == "Service "+service.String() {
			out = append(out, p)
		}
	}
	return out
}

// otherFrontends are those of the service port that a frontend belongs to, but for
// itself.
func otherFrontends(e *plan.Evidence, of *plan.Frontend) []*plan.Frontend {
	var out []*plan.Frontend
	for _, f := range e.Frontends() {
		if f != of && f.Port == of.Port && f.Protocol == of.Protocol {
			out = append(out, f)
		}
	}
	return out
}

// resolvePort finds a packet to a service port, for each family in which the
// Service and the sender are.
func (r *resolver) resolvePort(svc *model.Service, port *model.ServicePort) []result {
	var out []result
	for _, family := range model.Families {
		if r.source.IsValid() && model.FamilyOf(r.source) != family {
			continue
		}
		var probe plan.Packet
		r.setClient(family, &probe)
		f := r.bestFrontend(svc, port, family, probe.From)
		if f == nil {
			continue
		}
		to := f.Addr
		if f.NodePort() {
			to = firstOf(family, r.Desired.Settings.NodePortIPs)
		}
		found := r.resolvePacket(to, f.Key.Port, f.Protocol)
		if r.question.From == plan.OutsideClient.String() && f.Kind == plan.ClusterIP {
			found.suggestions = append(found.suggestions, suggestion{kind: onlyClusterIP, service: svc.Name})
		}
		out = append(out, found)
	}
	return out
}

// bestFrontend is the one that such a sender would use: from outside, what is
// there for those outside.
func (r *resolver) bestFrontend(svc *model.Service, port *model.ServicePort, family model.Family, from plan.Client) *plan.Frontend {
	var nodePort []netip.Addr
	if port.NodePort != 0 && firstOf(family, r.Desired.Settings.NodePortIPs).IsValid() {
		nodePort = []netip.Addr{plan.NodePortKey(family, 0, 0).Addr}
	}
	addrs := slices.Concat(svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs, nodePort)
	switch {
	case r.target.meansNodePort(port):
		addrs = nodePort
	case from == plan.OutsideClient && r.question.From != "" && r.question.From != plan.PodClient.String(): // not a pod that is not recognised
		addrs = slices.Concat(svc.LoadBalancerIPs, svc.ExternalIPs, nodePort, svc.ClusterIPs)
	}
	for _, ip := range addrs {
		number := port.Port
		if ip.IsUnspecified() {
			number = port.NodePort
		}
		f := r.Desired.Frontends[plan.Key{Addr: ip, Port: number, Protocol: port.Protocol}]
		if f != nil && f.Service == svc.Name && f.Family() == family {
			return f
		}
	}
	return nil
}

func firstOf(f model.Family, ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if model.FamilyOf(ip) == f {
			return ip
		}
	}
	return netip.Addr{}
}

// resolveAddress finds what is at an address and port, and if that is nothing, what
// is near it.
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

// near looks through all Services for what is near an address where nothing is.
// It returns the Service that the address belongs to, if there is one. This goes
// over the whole cluster, but only to tell somebody of a mistake.
func (r *resolver) suggest(f *result, to netip.Addr, port uint16) (owner model.Name) {
	onNode := r.isNodeIP(to)
	for name, svc := range r.State.Services() {
		if field, has := fieldOf(svc, to); has {
			owner = name
			f.suggestions = append(f.suggestions, suggestion{kind: hasPorts, service: name, ports: svc.Ports, field: field})
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
		s.kind = nodePortIPs
		for _, ip := range r.Desired.Settings.NodePortIPs {
			if ofFamily(ip) {
				s.ips = append(s.ips, ip)
			}
		}
	}
	return s
}

// fieldOf tells which field of a Service an address stands in.
func fieldOf(svc *model.Service, ip netip.Addr) (plan.Kind, bool) {
	switch {
	case slices.Contains(svc.ClusterIPs, ip):
		return plan.ClusterIP, true
	case slices.Contains(svc.LoadBalancerIPs, ip):
		return plan.LoadBalancerIP, true
	case slices.Contains(svc.ExternalIPs, ip):
		return plan.ExternalIP, true
	}
	return 0, false
}

func hasEndpoint(s *model.Slice, ip netip.Addr) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return e.Addr == ip })
}

// missing is the result for a Service that is not known.
func (r *resolver) unknownService() result {
	f := result{undecided: noSuchService, service: r.target.service, said: cmp.Or(r.question.From, plan.PodClient.String())}
	f.problems = r.refused(r.target.service)
	if len(r.State.Slices(r.target.service)) > 0 {
		f.suggestions = append(f.suggestions, suggestion{kind: orphanSlices, service: r.target.service})
	}
	for name := range r.State.Services() {
		if name.Name == r.target.service.Name {
			f.suggestions = append(f.suggestions, suggestion{kind: sameName, service: name})
		}
	}
	f.sortSuggestions()
	return f
}

// noPort is the result for a Service that lacks the port that is asked for. If
// it is a number, it is told what happens to a packet that goes there.
func (r *resolver) unknownPort(svc *model.Service) result {
	number, ok := r.target.number()
	for _, ip := range svc.ClusterIPs {
		if fits := !r.source.IsValid() || model.FamilyOf(ip) == model.FamilyOf(r.source); ok && fits {
			return r.resolveAddress(ip, number, cmp.Or(r.target.proto, model.TCP))
		}
	}
	f := result{undecided: plan.UnknownPort.String(), said: cmp.Or(r.question.From, plan.PodClient.String())}
	r.attach(&f, svc.Name)
	kind := hasPorts
	if r.target.port == "" || len(svc.Ports) == 0 {
		kind = noPorts
	}
	f.suggestions = append(f.suggestions, suggestion{kind: kind, service: svc.Name, ports: svc.Ports})
	return f
}
