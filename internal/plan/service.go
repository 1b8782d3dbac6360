package plan

import (
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
// Service and its slices only.
func planService(env *environment, svc *model.Service, all []*model.Slice, work *workspace) servicePlan {
	d := draft{
		servicePlan: servicePlan{healthPort: svc.HealthCheckNodePort},
		service:     svc,
		env:         env,
		slices:      all,
		work:        &work.candidates,
		addresses:   work.addresses[:0],
	}
	d.collectAddresses()
	d.chooseAlgorithm()
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
	return d.servicePlan
}

// draft is a servicePlan under construction.
type draft struct {
	servicePlan
	service *model.Service
	env     *environment
	slices  []*model.Slice
	work    *candidates

	addresses []address
	algorithm model.Algorithm
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
	d.reportUnfiltered()
	if !d.env.noExternalIPs {
		d.collectExternal(ExternalIP, d.service.ExternalIPs)
	} else if len(d.service.ExternalIPs) > 0 {
		d.problems = append(d.problems, d.externalIPsOff())
	}
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
		if fault != "" {
			d.leaveOut(kind, ip, fault)
			continue
		}
		a := address{Addr: ip, kind: kind}
		if kind == LoadBalancerIP && d.filters(model.FamilyOf(ip)) {
			a.filtered = true
			a.sources = d.env.allowedSources(d.service.SourceRanges, ip)
		}
		d.addresses = append(d.addresses, a)
	}
}

// filters reports whether the source ranges restrict the clients of load
// balancer IPs of a family. Ranges only restrict their own family. If none is
// valid at all, no client is admitted: the field was meant to exclude some.
func (d *draft) filters(f model.Family) bool {
	if !d.service.Filtered {
		return false
	}
	ranges := d.service.SourceRanges
	return len(ranges) == 0 || len(prefixesOf(f, ranges)) > 0
}

// hasFamily reports whether one of the Service's ClusterIPs is of a family.
func (p *servicePlan) hasFamily(f model.Family) bool {
	return slices.ContainsFunc(p.clusterIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == f })
}

func (d *draft) planPort(port *model.ServicePort, f model.Family) {
	svc := d.service
	d.work.gather(d.env, d.slices, port, f)
	pools := d.work.pools(d.env, svc)
	d.balance(port, &pools)
	if pools.localUsable && svc.HealthCheckNodePort != 0 {
		for _, e := range pools.local.Endpoints {
			d.healthy = append(d.healthy, e.Addr())
		}
	}

	if d.env.nodePortsOnly {
		d.planOnlyNodePort(port, f, &pools)
		return
	}
	for i := range d.addresses {
		if a := &d.addresses[i]; model.FamilyOf(a.Addr) == f {
			d.add(a, port.Port, port, &pools)
		}
	}
	d.planNodePort(port, f, &pools)
}

func (d *draft) planNodePort(port *model.ServicePort, f model.Family, pools *pools) {
	if port.NodePort != 0 {
		d.add(&address{Addr: unspecified(f), kind: NodePort}, port.NodePort, port, pools)
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

func (d *draft) add(at *address, number uint16, port *model.ServicePort, pools *pools) {
	svc := d.service
	f := &Frontend{
		Key:      Key{at.Addr, number, port.Protocol},
		Kind:     at.kind,
		Service:  svc.Name,
		Port:     port.Name,
		Route:    pools.cluster,
		Affinity: svc.Affinity,
		Filtered: at.filtered,
		Sources:  at.sources,
	}
	f.Masquerade, f.MasqueradeCause = d.env.masquerade(at.kind, model.FamilyOf(at.Addr), svc.ExternalPolicy)
	switch all, outside := localFor(svc, at.kind); {
	case all:
		f.Route = *pools.local
		f.AlsoServing = pools.besideLocal
	case outside:
		f.Outside = pools.local
		f.AlsoServing = pools.besideBoth
	default:
		f.AlsoServing = pools.besideCluster
	}
	d.delegate(&f.Route)
	f.ProxyConnects = d.env.proxyConnects && ProxyForwards(f.Protocol)
	d.frontends = append(d.frontends, f)
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
