package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"sluice/internal/model"
)

// servicePlan is what one Service asks for by itself. Conflicts with other
// Services are settled by claims.
type servicePlan struct {
	// frontends are sorted by key, each key once.
	frontends []*Frontend
	// clusterIPs are those whose other ports are rejected.
	clusterIPs []netip.Addr
	// healthPort is the health check node port, 0 for none, and localEndpoints
	// the number of usable endpoints on this node, which it reports.
	healthPort                uint16
	localEndpoints, localIPv6 int
	// ipv4 and ipv6 are the families of the Service.
	ipv4, ipv6 bool
	reports    []report
}

func (p *servicePlan) of(f model.Family) bool {
	return f == model.IPv4 && p.ipv4 || f == model.IPv6 && p.ipv6
}

// workspace is memory that is reused from one Service to the next.
type workspace struct {
	candidates
	addresses []address
}

// planService plans one Service. The result depends on the environment, the
// Service and its slices only, whether rosters are kept of it or not.
func planService(env *environment, svc *model.Service, all []*model.Slice, ejected []model.Ejection, work *workspace, kept *rosters) servicePlan {
	d := draft{
		servicePlan: servicePlan{healthPort: svc.HealthCheckNodePort},
		service:     svc,
		env:         env,
		slices:      all,
		work:        &work.candidates,
		addresses:   work.addresses[:0],
		rosters:     kept,
	}
	d.work.ejected = d.ejected(ejected)
	d.collectAddresses()
	d.chooseAlgorithm()
	d.checkEject()
	d.checkDirect()
	d.checkLimits()
	for _, f := range model.Families {
		if !d.hasFamily(f) {
			continue
		}
		for i := range svc.Ports {
			d.planPort(&svc.Ports[i], f)
		}
	}
	// An address may be in several fields. They were planned in order of
	// precedence, and a stable sort keeps that order within a key.
	slices.SortStableFunc(d.frontends, func(a, b *Frontend) int { return a.Key.Compare(b.Key) })
	d.frontends = slices.CompactFunc(d.frontends, func(a, b *Frontend) bool { return a.Key == b.Key })
	d.countLocal()
	d.report()
	d.ipv4, d.ipv6 = d.hasFamily(model.IPv4), d.hasFamily(model.IPv6)
	if env.frontendsOnly || env.nodePortsOnly {
		d.clusterIPs = nil
	}
	work.addresses = d.addresses
	if kept != nil {
		kept.done()
	}
	return d.servicePlan
}

// draft is a servicePlan under construction.
type draft struct {
	servicePlan
	service *model.Service
	env     *environment
	slices  []*model.Slice
	work    *candidates
	rosters *rosters // nil if none are kept

	addresses []address
	nodePorts []address // the unspecified address of each family
	algorithm model.Algorithm
	directs   bool         // external addresses may have direct return
	healthy   []netip.Addr // usable local endpoints, with repetitions
	problems  []model.Problem
}

// address is one on which all ports of the Service answer.
type address struct {
	netip.Addr
	kind     Kind
	filtered bool // only sources may connect
	sources  []netip.Prefix
}

func (d *draft) collectAddresses() {
	for _, ip := range d.service.ClusterIPs {
		if !d.env.serves(model.FamilyOf(ip)) {
			continue
		}
		if fault := addressFault(ip); fault != "" {
			d.leaveOut(ClusterIP, ip, fault)
			continue
		}
		d.clusterIPs = append(d.clusterIPs, ip)
		d.addresses = append(d.addresses, address{Addr: ip, kind: ClusterIP})
	}
	d.collectExternal(LoadBalancerIP, d.service.LoadBalancerIPs)
	if !d.env.noExternalIPs {
		d.collectExternal(ExternalIP, d.service.ExternalIPs)
	} else if len(d.service.ExternalIPs) > 0 {
		d.problems = append(d.problems, d.externalIPsOff())
	}
	for _, f := range model.Families {
		if d.hasFamily(f) && hasNodePort(d.service) {
			d.nodePorts = append(d.nodePorts, d.external(NodePort, unspecified(f)))
		}
	}
	d.reportUnfiltered()
}

func (d *draft) collectExternal(kind Kind, ips []netip.Addr) {
	for _, ip := range ips {
		if !d.env.serves(model.FamilyOf(ip)) {
			continue
		}
		fault := addressFault(ip)
		if fault == "" && !d.hasFamily(model.FamilyOf(ip)) {
			fault = "is of a family that the Service has no ClusterIP of"
		}
		switch allowed := d.env.externalIPRanges; {
		case fault != "":
			d.leaveOut(kind, ip, fault)
		case kind == ExternalIP && len(allowed) > 0 && !anyContains(allowed, ip):
			d.problems = append(d.problems, d.externalIPRefused(ip))
		default:
			d.addresses = append(d.addresses, d.external(kind, ip))
		}
	}
}

// external returns an external address, with the sources that may connect.
func (d *draft) external(kind Kind, ip netip.Addr) address {
	a := address{Addr: ip, kind: kind}
	if f := model.FamilyOf(ip); d.filters(kind, f) {
		own := ip
		if kind == NodePort {
			own = loopback(f) // what the node uses as its source at the loopback address
		}
		a.filtered = true
		a.sources = d.env.allowedSources(d.service.SourceRanges, own)
	}
	return a
}

// filters reports whether the source ranges restrict the clients of external
// addresses of a kind and family. Ranges only restrict their own family. If none is
// valid at all, no client is admitted: the field was meant to exclude some.
func (d *draft) filters(kind Kind, f model.Family) bool {
	if !d.service.Filtered || d.env.limits.NoSourceRanges || kind != LoadBalancerIP && !d.service.FilterAll {
		return false
	}
	ranges := d.service.SourceRanges
	return len(ranges) == 0 || len(prefixesOf(f, ranges)) > 0
}

// OpenBeside reports whether everybody may connect to a frontend of a Service that restricts the clients of its load
// balancer IPs.
func (f *Frontend) OpenBeside(svc *model.Service) bool {
	return svc.Filtered && !svc.FilterAll && !f.Filtered && (f.Kind == NodePort || f.Kind == ExternalIP)
}

// hasFamily reports whether one of the Service's ClusterIPs is of a family.
func (p *servicePlan) hasFamily(f model.Family) bool {
	return slices.ContainsFunc(p.clusterIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == f })
}

func (d *draft) planPort(port *model.ServicePort, f model.Family) {
	svc := d.service
	if d.env.limits.cannotServe(port) {
		return
	}
	pools := d.pools(port, f)
	d.limit(&pools)
	d.balance(port, &pools)
	d.reportRing(port, pools.cluster.Endpoints)
	d.watch(port, &pools)
	pools.direct = d.direct(port, f, &pools.cluster)
	if pools.localUsable && svc.HealthCheckNodePort != 0 {
		for _, e := range pools.local.Endpoints {
			d.healthy = append(d.healthy, e.Addr())
		}
	}

	if d.env.nodePortsOnly {
		d.planRanges(port, f, &pools) // reports that there are none
		d.planOnlyNodePort(port, f, &pools)
		return
	}
	for i := range d.addresses {
		if a := &d.addresses[i]; model.FamilyOf(a.Addr) == f {
			d.add(a, Key{Addr: a.Addr, Port: port.Port, Protocol: port.Protocol}, port, &pools)
		}
	}
	d.planRanges(port, f, &pools)
	d.planNodePort(port, f, &pools)
}

// pools selects the endpoints of a service port.
func (d *draft) pools(port *model.ServicePort, f model.Family) pools {
	if d.rosters == nil {
		d.work.gather(d.env, d.slices, port, f)
		return d.work.pools(d.env, d.service)
	}
	r := d.rosters.roster(d.env, d.slices, port, f)
	if len(d.work.ejected) == 0 && r.usual(withLocal(d.service)) {
		d.work.slices, d.work.found, d.work.weighted, d.work.allZero = r.slices, r.found, false, false
		return r.poolsOf(d.service)
	}
	d.work.take(r, port)
	return d.work.pools(d.env, d.service)
}

func (d *draft) planNodePort(port *model.ServicePort, f model.Family, pools *pools) {
	if port.NodePort == 0 {
		return
	}
	for i := range d.nodePorts {
		if a := &d.nodePorts[i]; model.FamilyOf(a.Addr) == f {
			d.add(a, NodePortKey(f, port.NodePort, port.Protocol), port, pools)
		}
	}
}

// planOnlyNodePort plans the node port of a service port where nothing else is served.
func (d *draft) planOnlyNodePort(port *model.ServicePort, f model.Family, pools *pools) {
	if ProxyForwards(port.Protocol) {
		d.planNodePort(port, f, pools)
		return
	}
	if p := d.notForwarded(port); port.NodePort != 0 && !slices.Contains(d.problems, p) {
		d.problems = append(d.problems, p)
	}
}

func (d *draft) add(at *address, key Key, port *model.ServicePort, pools *pools) {
	svc := d.service
	f := &Frontend{
		Key:      key,
		Kind:     at.kind,
		Service:  svc.Name,
		Port:     port.Name,
		Route:    pools.cluster,
		Affinity: svc.Affinity,
		Filtered: at.filtered,
		Sources:  at.sources,
		Watched:  pools.watched,
		Ejected:  pools.ejected,
		Released: svc.Released,
	}
	f.Masquerade, f.MasqueradeCause = d.env.masquerade(at.kind, model.FamilyOf(at.Addr), svc.ExternalPolicy)
	f.PreserveDestination = d.preserves(at.kind)
	if at.kind == LoadBalancerIP && d.env.healthPort != 0 {
		f.HealthPort = cmp.Or(svc.HealthCheckNodePort, d.env.healthPort)
	}
	switch all, outside := localFor(svc, at.kind); {
	case all, f.PreserveDestination, outside && d.env.limits.OneRoute:
		f.Route = *pools.local
		f.AlsoServing = pools.besideLocal
	case outside:
		f.Outside = pools.local
		f.AlsoServing = pools.besideBoth
	default:
		f.AlsoServing = pools.besideCluster
	}
	d.letPass(f)
	if !key.IsRange() {
		d.delegate(f)
		if f.Kind != ClusterIP {
			f.Direct = pools.direct
		}
	}
	f.ProxyConnects = d.env.proxyConnects && ProxyForwards(f.Protocol)
	d.frontends = append(d.frontends, f)
}

// letPass leaves packets to an external address alone for which there is no endpoint, if the Service
// asks for that.
func (d *draft) letPass(f *Frontend) {
	if !d.passes(f) {
		return
	}
	if len(f.Route.Endpoints) == 0 {
		f.Route.Empty.Verdict = Pass
	}
	if f.Outside != nil && len(f.Outside.Endpoints) == 0 {
		outside := *f.Outside // others share it
		outside.Empty.Verdict = Pass
		f.Outside = &outside
	}
}

func (d *draft) passes(f *Frontend) bool {
	return d.service.PassThrough && f.Kind != ClusterIP || f.Kind == LoadBalancerIP && slices.Contains(d.service.RoutedIPs, f.Addr)
}

// preserves reports whether packets to a kind of frontend keep their destination, which only endpoints
// on this node can answer.
func (d *draft) preserves(k Kind) bool {
	return d.service.PreserveDestination && d.env.preserveDestination && (k == LoadBalancerIP || k == NodePort)
}

// localFor reports which connections to a kind of frontend stay on this node:
// all of them, or those from outside.
func localFor(svc *model.Service, kind Kind) (all, outside bool) {
	if kind == ClusterIP {
		return svc.InternalPolicy == model.PolicyLocal, false
	}
	return false, svc.ExternalPolicy == model.PolicyLocal
}

// countLocal counts an endpoint once, regardless of how many ports it serves.
func (d *draft) countLocal() {
	slices.SortFunc(d.healthy, netip.Addr.Compare)
	d.healthy = slices.Compact(d.healthy)
	d.localEndpoints = len(d.healthy)
	for _, ip := range d.healthy {
		if model.FamilyOf(ip) == model.IPv6 {
			d.localIPv6++
		}
	}
}
