package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// finding is all that is known of one packet. Nothing in it belongs to the
// engine: it may be used when the view is gone.
type finding struct {
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
	hints []hint
}

// hint is something that is nearly what was asked for.
type hint struct {
	kind hintKind
	// What it is about; which of these are set depends on the kind.
	service model.Name
	ports   []model.ServicePort
	ips     []netip.Addr
	field   plan.Kind
}

type hintKind uint8

const (
	hasPorts         hintKind = iota // the Service of the address has these ports
	otherProtocol                    // the node port is there for another protocol
	sameName                         // a Service of that name is in another namespace
	isEndpoint                       // the address is an endpoint of the Service
	otherFamily                      // the node port is there for the other family
	nodePortIPs                      // the node port is the Service's, but answers elsewhere
	orphanSlices                     // there are slices for a Service that is not known
	onlyClusterIP                    // the Service has no frontend for talkers from outside
	noPorts                          // nothing of the Service can be used
	unservedLoopback                 // loopback is not an address for node ports
)

// mostAnswers is after how many answers the other ports of a Service are left
// out.
const mostAnswers = 20

// looker looks things up in a view.
type looker struct {
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
func (l *looker) local(ip netip.Addr) bool {
	if l.isLocal == nil {
		return false
	}
	yes, err := l.isLocal(ip)
	return yes && err == nil
}

// ours tells whether an address is the node's: one that it is known by, or one by
// a route.
func (l *looker) ours(ip netip.Addr) bool {
	return ip.IsLoopback() || slices.Contains(l.nodeIPs, ip) || l.local(ip)
}

// look finds what there is to say to a question: one finding for each packet
// that may be meant.
func (l *looker) look() (findings []finding, omitted int) {
	l.nodeIPs = slices.Clone(l.State.HostIPs())
	if n := l.State.Node(); n != nil {
		l.nodeIPs = append(l.nodeIPs, n.IPs...)
	}
	if l.target.service == (model.Name{}) {
		return []finding{l.findAddress(l.target.key.Addr(), l.target.key.Port(), cmp.Or(l.target.proto, model.TCP))}, 0
	}
	svc := l.State.Service(l.target.service)
	if svc == nil {
		return []finding{l.missing()}, 0
	}
	for i := range svc.Ports {
		switch {
		case !l.target.means(&svc.Ports[i]):
		case len(findings) >= mostAnswers:
			omitted++
		default:
			findings = append(findings, l.findPort(svc, &svc.Ports[i])...)
		}
	}
	if len(findings) == 0 {
		findings = append(findings, l.noPort(svc))
	}
	return findings, omitted
}

// sender fills in who sends a packet to a family.
func (l *looker) sender(f model.Family, p *plan.Packet) {
	d := l.Desired.Settings.Detector(f)
	if p.To.Addr.IsLoopback() { // nobody else can send there
		p.From, p.Source = plan.NodeClient, p.To.Addr
		return
	}
	switch l.question.From {
	case "", plan.PodClient.String():
		if d.Enabled() {
			p.From = plan.PodClient
		}
	case plan.NodeClient.String():
		p.From, p.Source = plan.NodeClient, l.nodeIP(f)
	case plan.OutsideClient.String():
	default:
		p.Source = l.source
		p.From = l.Desired.Settings.Client(l.source, l.in, l.ours(l.source))
	}
}

// nodeIP is an address of the node that others can reach.
func (l *looker) nodeIP(f model.Family) netip.Addr {
	if n := l.State.Node(); n != nil && n.PrimaryIP(f).IsValid() {
		return n.PrimaryIP(f)
	}
	for _, ip := range l.nodeIPs {
		if model.FamilyOf(ip) == f && ip.IsGlobalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

// find decides about a packet and gathers what is known of its Service.
func (l *looker) find(to netip.Addr, port uint16, proto model.Protocol) finding {
	p := plan.Packet{To: plan.Key{Addr: to, Port: port, Protocol: proto}, ToNode: l.local(to)}
	l.sender(model.FamilyOf(to), &p)
	f := finding{packet: p, said: cmp.Or(l.question.From, plan.PodClient.String()), in: l.in}
	f.detector = l.Desired.Settings.Detector(model.FamilyOf(to))
	f.decision = l.Desired.Decide(p)
	if fe := f.decision.Frontend; fe != nil {
		l.attach(&f, fe.Service)
		f.others = otherFrontends(&f.evidence, fe)
	}
	return f
}

// attach adds what is known of a Service.
func (l *looker) attach(f *finding, service model.Name) {
	f.service = service
	f.evidence = l.Evidence(service)
	f.problems = append(f.problems, l.refused(service)...)
	f.problems = append(f.problems, l.Desired.Problems["Service "+service.String()]...)
	for _, s := range f.evidence.Slices {
		f.problems = append(f.problems, l.Desired.Problems["EndpointSlice "+s.Name.String()]...)
	}
}

// refused is why a Service, or a newer version of it, was not taken over.
func (l *looker) refused(service model.Name) []model.Problem {
	var out []model.Problem
	for _, p := range l.Desired.Refused {
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

// findPort finds a packet to a service port, for each family in which the
// Service and the sender are.
func (l *looker) findPort(svc *model.Service, port *model.ServicePort) []finding {
	var out []finding
	for _, family := range model.Families {
		if l.source.IsValid() && model.FamilyOf(l.source) != family {
			continue
		}
		var probe plan.Packet
		l.sender(family, &probe)
		f := l.bestFrontend(svc, port, family, probe.From)
		if f == nil {
			continue
		}
		to := f.Addr
		if f.NodePort() {
			to = firstOf(family, l.Desired.Settings.NodePortIPs)
		}
		found := l.find(to, f.Key.Port, f.Protocol)
		if l.question.From == plan.OutsideClient.String() && f.Kind == plan.ClusterIP {
			found.hints = append(found.hints, hint{kind: onlyClusterIP, service: svc.Name})
		}
		out = append(out, found)
	}
	return out
}

// bestFrontend is the one that such a sender would use: from outside, what is
// there for those outside.
func (l *looker) bestFrontend(svc *model.Service, port *model.ServicePort, family model.Family, from plan.Client) *plan.Frontend {
	var nodePort []netip.Addr
	if port.NodePort != 0 && firstOf(family, l.Desired.Settings.NodePortIPs).IsValid() {
		nodePort = []netip.Addr{plan.NodePortKey(family, 0, 0).Addr}
	}
	addrs := slices.Concat(svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs, nodePort)
	switch {
	case l.target.meansNodePort(port):
		addrs = nodePort
	case from == plan.OutsideClient && l.question.From != "" && l.question.From != plan.PodClient.String(): // not a pod that is not recognised
		addrs = slices.Concat(svc.LoadBalancerIPs, svc.ExternalIPs, nodePort, svc.ClusterIPs)
	}
	for _, ip := range addrs {
		number := port.Port
		if ip.IsUnspecified() {
			number = port.NodePort
		}
		f := l.Desired.Frontends[plan.Key{Addr: ip, Port: number, Protocol: port.Protocol}]
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

// findAddress finds what is at an address and port, and if that is nothing, what
// is near it.
func (l *looker) findAddress(to netip.Addr, port uint16, proto model.Protocol) finding {
	f := l.find(to, port, proto)
	if f.decision.Frontend != nil || f.decision.Cause == plan.NoIPv6 {
		return f
	}
	owner := l.near(&f, to, port)
	if owner != (model.Name{}) {
		l.attach(&f, owner)
	}
	return f
}

// near looks through all Services for what is near an address where nothing is.
// It returns the Service that the address belongs to, if there is one. This goes
// over the whole cluster, but only to tell somebody of a mistake.
func (l *looker) near(f *finding, to netip.Addr, port uint16) (owner model.Name) {
	ours := l.ours(to)
	for name, svc := range l.State.Services() {
		if field, has := fieldOf(svc, to); has {
			owner = name
			f.hints = append(f.hints, hint{kind: hasPorts, service: name, ports: svc.Ports, field: field})
		}
		for _, p := range svc.Ports {
			if ours && p.NodePort == port {
				f.hints = append(f.hints, l.nodePortHint(svc, p, to, f.packet.To.Protocol))
			}
		}
		if slices.ContainsFunc(l.State.Slices(name), func(s *model.Slice) bool { return hasEndpoint(s, to) }) {
			f.hints = append(f.hints, hint{kind: isEndpoint, service: name})
		}
	}
	f.sortHints()
	return owner
}

func (f *finding) sortHints() {
	slices.SortFunc(f.hints, func(a, b hint) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.service.Compare(b.service))
	})
}

func (l *looker) nodePortHint(svc *model.Service, p model.ServicePort, to netip.Addr, proto model.Protocol) hint {
	family := model.FamilyOf(to)
	ofFamily := func(ip netip.Addr) bool { return model.FamilyOf(ip) == family }
	h := hint{service: svc.Name, ports: []model.ServicePort{{Name: p.Name, Port: p.NodePort, NodePort: p.NodePort, Protocol: p.Protocol}}}
	switch {
	case p.Protocol != proto:
		h.kind = otherProtocol
	case !slices.ContainsFunc(svc.ClusterIPs, ofFamily):
		h.kind, h.ips = otherFamily, svc.ClusterIPs
	case to.IsLoopback():
		h.kind = unservedLoopback
	default:
		h.kind = nodePortIPs
		for _, ip := range l.Desired.Settings.NodePortIPs {
			if ofFamily(ip) {
				h.ips = append(h.ips, ip)
			}
		}
	}
	return h
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

// missing is the finding for a Service that is not known.
func (l *looker) missing() finding {
	f := finding{undecided: noSuchService, service: l.target.service, said: cmp.Or(l.question.From, plan.PodClient.String())}
	f.problems = l.refused(l.target.service)
	if len(l.State.Slices(l.target.service)) > 0 {
		f.hints = append(f.hints, hint{kind: orphanSlices, service: l.target.service})
	}
	for name := range l.State.Services() {
		if name.Name == l.target.service.Name {
			f.hints = append(f.hints, hint{kind: sameName, service: name})
		}
	}
	f.sortHints()
	return f
}

// noPort is the finding for a Service that lacks the port that is asked for. If
// it is a number, it is told what happens to a packet that goes there.
func (l *looker) noPort(svc *model.Service) finding {
	number, ok := l.target.number()
	for _, ip := range svc.ClusterIPs {
		if fits := !l.source.IsValid() || model.FamilyOf(ip) == model.FamilyOf(l.source); ok && fits {
			return l.findAddress(ip, number, cmp.Or(l.target.proto, model.TCP))
		}
	}
	f := finding{undecided: plan.UnknownPort.String(), said: cmp.Or(l.question.From, plan.PodClient.String())}
	l.attach(&f, svc.Name)
	kind := hasPorts
	if l.target.port == "" || len(svc.Ports) == 0 {
		kind = noPorts
	}
	f.hints = append(f.hints, hint{kind: kind, service: svc.Name, ports: svc.Ports})
	return f
}
