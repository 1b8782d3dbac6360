package plan

import "slices"

func (f *Frontend) same(o *Frontend) bool {
	return f.sameRules(o) && f.MasqueradeCause == o.MasqueradeCause && slices.Equal(f.AlsoServing, o.AlsoServing)
}

// sameRules reports whether new connections are treated alike, which is all
// that is programmed into the kernel.
func (f *Frontend) sameRules(o *Frontend) bool {
	return f.Key == o.Key && f.Kind == o.Kind &&
		f.Service == o.Service && f.Port == o.Port &&
		f.ProxyConnects == o.ProxyConnects && f.Masquerade == o.Masquerade && f.Affinity == o.Affinity &&
		f.Filtered == o.Filtered && slices.Equal(f.Sources, o.Sources) &&
		f.Route.same(&o.Route) && f.Outside.same(o.Outside) &&
		// Who chooses instead of rules must know who keeps flows.
		(!f.Route.Delegated() || slices.Equal(f.AlsoServing, o.AlsoServing))
}

func (r *Route) same(o *Route) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Empty == o.Empty && r.Local == o.Local && r.Algorithm == o.Algorithm && r.Balancer.same(o.Balancer) &&
		slices.Equal(r.Endpoints, o.Endpoints)
}

func (b *Balancer) same(o *Balancer) bool {
	return b == o || b != nil && o != nil && *b == *o
}

func (s *Settings) same(o *Settings) bool {
	return s.IPv4.same(&o.IPv4) && s.IPv6.same(&o.IPv6) && s.NoIPv6 == o.NoIPv6 &&
		s.NodePortAll4 == o.NodePortAll4 && s.NodePortAll6 == o.NodePortAll6 &&
		slices.Equal(s.NodePortIPs, o.NodePortIPs) &&
		slices.Equal(s.LoopbackIPs, o.LoopbackIPs) &&
		slices.Equal(s.ServiceCIDRs, o.ServiceCIDRs) &&
		slices.Equal(s.PodCIDRs, o.PodCIDRs) && slices.Equal(s.HostIPs, o.HostIPs) && slices.Equal(s.ProxyIPs, o.ProxyIPs) &&
		s.NodePortsOnly == o.NodePortsOnly &&
		s.ExclusiveIPs == o.ExclusiveIPs && s.MasqueradeMark == o.MasqueradeMark && s.DropInvalid == o.DropInvalid
}

func (d *Detector) same(o *Detector) bool {
	return slices.Equal(d.Sources, o.Sources) &&
		d.Interface == o.Interface && d.InterfacePrefix == o.InterfacePrefix
}
