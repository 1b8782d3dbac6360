package plan

import "slices"

// Field is a part of a frontend in which two versions of it can differ.
type Field uint8

// The fields. Those before AlsoServingField decide about new connections, which is what is programmed into the
// kernel.
const (
	OwnerField      Field = iota // the Service, or the name of its port
	KindField                    // what the address is to the Service
	EndpointsField               // those of Route, or what happens without any
	PolicyField                  // which endpoints are admitted, and whether others are from outside
	OutsideField                 // there is an Outside or not; its endpoints, or what happens without any
	AlgorithmField               // how an endpoint is chosen
	ProxyField                   // whether the proxy connects
	MasqueradeField              // which clients are masqueraded
	AffinityField                // for how long a client keeps its endpoint
	SourcesField                 // who may connect
	DirectField                  // which nodes answer clients outside themselves

	AlsoServingField     // who keeps flows
	WatchedField         // whether it is noticed who does not answer
	EjectedField         // who is left out because of that
	ReleasedField        // whether another proxy serves it too
	MasqueradeCauseField // why clients are masqueraded
	NumFields
)

// Differences returns in what a frontend differs from another version of it.
func (f *Frontend) Differences(o *Frontend) (out []Field) {
	note := func(field Field, same bool) {
		if !same {
			out = append(out, field)
		}
	}
	outside := func(same func(a, b *Route) bool) bool {
		if f.Outside == nil || o.Outside == nil {
			return f.Outside == o.Outside
		}
		return same(f.Outside, o.Outside)
	}
	same := func(a, b []Endpoint) bool { return samePool(a, b) || slices.Equal(a, b) }
	samePool := func(a, b *Route) bool { return a.Empty == b.Empty && same(a.Endpoints, b.Endpoints) }
	samePolicy := func(a, b *Route) bool { return a.Local == b.Local }
	sameChoice := func(a, b *Route) bool { return a.Algorithm == b.Algorithm && a.Balancer.same(b.Balancer) }
	note(OwnerField, f.Service == o.Service && f.Port == o.Port)
	note(KindField, f.Kind == o.Kind)
	note(EndpointsField, samePool(&f.Route, &o.Route))
	note(PolicyField, samePolicy(&f.Route, &o.Route) && outside(samePolicy) &&
		f.PreserveDestination == o.PreserveDestination && f.HealthPort == o.HealthPort)
	note(OutsideField, outside(samePool))
	note(AlgorithmField, sameChoice(&f.Route, &o.Route) && (f.Outside == nil || o.Outside == nil || sameChoice(f.Outside, o.Outside)))
	note(ProxyField, f.ProxyConnects == o.ProxyConnects)
	note(MasqueradeField, f.Masquerade == o.Masquerade)
	note(AffinityField, f.Affinity == o.Affinity)
	note(SourcesField, f.Filtered == o.Filtered && slices.Equal(f.Sources, o.Sources))
	note(DirectField, f.Direct.same(o.Direct))
	note(AlsoServingField, same(f.AlsoServing, o.AlsoServing))
	note(WatchedField, f.Watched == o.Watched)
	note(EjectedField, slices.Equal(f.Ejected, o.Ejected))
	note(ReleasedField, f.Released == o.Released)
	note(MasqueradeCauseField, f.MasqueradeCause == o.MasqueradeCause)
	return out
}

func (f *Frontend) same(o *Frontend) bool { return len(f.Differences(o)) == 0 }

// sameRules reports whether the kernel does not need to be changed for one instead of the other.
func (f *Frontend) sameRules(o *Frontend) bool {
	// Who chooses instead of rules must know who keeps flows.
	delegated := f.Route.Delegated()
	return !slices.ContainsFunc(f.Differences(o), func(field Field) bool {
		return field < AlsoServingField || field == AlsoServingField && delegated
	})
}

func (b *Balancer) same(o *Balancer) bool {
	return b == o || b != nil && o != nil && *b == *o
}

func (s *Settings) same(o *Settings) bool {
	return s.IPv4.Same(o.IPv4) && s.IPv6.Same(o.IPv6) && s.NoIPv6 == o.NoIPv6 &&
		s.NodePortAll4 == o.NodePortAll4 && s.NodePortAll6 == o.NodePortAll6 &&
		slices.Equal(s.NodePortIPs, o.NodePortIPs) &&
		slices.Equal(s.LoopbackIPs, o.LoopbackIPs) &&
		s.LoopbackLocal == o.LoopbackLocal && s.UnservedLoopback == o.UnservedLoopback &&
		slices.Equal(s.ServiceCIDRs, o.ServiceCIDRs) &&
		slices.Equal(s.PodCIDRs, o.PodCIDRs) && slices.Equal(s.HostIPs, o.HostIPs) && slices.Equal(s.ProxyIPs, o.ProxyIPs) &&
		slices.Equal(s.PrimaryIPs, o.PrimaryIPs) && s.DirectReturn.same(o.DirectReturn) &&
		s.NodePortsOnly == o.NodePortsOnly &&
		s.ExclusiveIPs == o.ExclusiveIPs && s.MasqueradeMark == o.MasqueradeMark && s.DropInvalid == o.DropInvalid
}

// SameBesidesDirect reports whether nothing but what is known of other nodes differs, for direct return.
func (s *Settings) SameBesidesDirect(o *Settings) bool {
	like := *s
	like.DirectReturn = o.DirectReturn
	return like.same(o)
}

// Same reports whether another one detects the same in the same way.
func (d Detector) Same(o Detector) bool {
	return slices.Equal(d.Sources, o.Sources) &&
		d.Interface == o.Interface && d.InterfacePrefix == o.InterfacePrefix
}
