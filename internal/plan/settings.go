package plan

import (
	"net/netip"
	"slices"

	"sluice/internal/model"
)

func planSettings(cfg *Config, state *model.State) Settings {
	var cidrs []netip.Prefix
	for _, c := range state.ServiceCIDRs() {
		if cfg.FrontendsOnly || cfg.NodePortsOnly {
			break
		}
		for _, f := range cfg.Families() {
			cidrs = append(cidrs, prefixesOf(f, c.Prefixes)...)
		}
	}
	out := Settings{
		IPv4:          detector(cfg, state.Node(), model.IPv4),
		IPv6:          detector(cfg, state.Node(), model.IPv6),
		NoIPv6:        cfg.NoIPv6,
		NodePortAll4:  cfg.NodePortAddresses.AllOf(model.IPv4) && !cfg.KnownNodePortIPs,
		NodePortAll6:  cfg.NodePortAddresses.AllOf(model.IPv6) && !cfg.KnownNodePortIPs && cfg.serves(model.IPv6),
		NodePortIPs:   cfg.served(nodePortIPs(cfg, state.Node(), state.HostIPs())),
		LoopbackIPs:   cfg.served(cfg.NodePortAddresses.Loopback),
		ServiceCIDRs:  mergePrefixes(cidrs),
		LoopbackLocal: cfg.LoopbackLocal,

		UnservedLoopback: cfg.UnservedLoopback,

		ExclusiveIPs:   cfg.Balancer != Balancer{},
		MasqueradeMark: 1 << cfg.MasqueradeBit,
		DropInvalid:    cfg.DropInvalid,
		NodePortsOnly:  cfg.NodePortsOnly,
	}
	out.DirectReturn = planDirectReturn(cfg, state)
	if cfg.PrimaryIPs {
		out.PrimaryIPs = cfg.served(primaryIPs(cfg.NodeIP, state.Node(), state.HostIPs()))
	}
	if cfg.ProxyConnects {
		out.ProxyIPs = proxyIPs(cfg, state)
		out.PodCIDRs = podCIDRs(cfg, state.Node())
		out.HostIPs = state.HostIPs()
	}
	return out
}

func podCIDRs(cfg *Config, node *model.Node) []netip.Prefix {
	all := slices.Clone(cfg.ClusterCIDRs)
	if node != nil {
		all = append(all, node.PodCIDRs...)
	}
	return mergePrefixes(all)
}

// proxyIPs returns the addresses at which the proxy accepts connections: those that other
// hosts use, or any other if the node has none of a family.
func proxyIPs(cfg *Config, state *model.State) (out []netip.Addr) {
	candidates := slices.Concat(primaryIPs(cfg.NodeIP, state.Node(), state.HostIPs()), state.HostIPs())
	for _, f := range cfg.Families() {
		i := slices.IndexFunc(candidates, func(ip netip.Addr) bool {
			// What is not on an interface, such as an address outside of the machine,
			// cannot be listened on.
			return model.FamilyOf(ip) == f && ip.IsGlobalUnicast() && slices.Contains(state.HostIPs(), ip)
		})
		if i >= 0 {
			out = append(out, candidates[i])
		}
	}
	return out
}

func (cfg *Config) served(ips []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool { return !cfg.serves(model.FamilyOf(ip)) })
}

func detector(cfg *Config, node *model.Node, f model.Family) Detector {
	if !cfg.serves(f) {
		return Detector{}
	}
	switch cfg.DetectLocal {
	case DetectClusterCIDR:
		return Detector{Sources: mergePrefixes(prefixesOf(f, cfg.ClusterCIDRs))}
	case DetectNodeCIDR:
		if node != nil {
			return Detector{Sources: mergePrefixes(prefixesOf(f, node.PodCIDRs))}
		}
	}
	if cfg.NodePortsOnly { // a socket does not tell which interface a client came through
		return Detector{}
	}
	switch cfg.DetectLocal {
	case DetectBridgeInterface:
		return Detector{Interface: cfg.BridgeInterface}
	case DetectInterfaceNamePrefix:
		return Detector{InterfacePrefix: cfg.InterfaceNamePrefix}
	}
	return Detector{}
}

func nodePortIPs(cfg *Config, node *model.Node, hostIPs []netip.Addr) []netip.Addr {
	which := &cfg.NodePortAddresses
	var ips []netip.Addr
	if which.Primary || !which.All && len(which.Prefixes) == 0 {
		// Where all local addresses answer, the primary one does only if it is local: some Nodes have
		// addresses that are translated on the way to them.
		for _, ip := range primaryIPs(cfg.NodeIP, node, hostIPs) {
			if !which.AllOf(model.FamilyOf(ip)) {
				ips = append(ips, ip)
			}
		}
	}
	for _, ip := range hostIPs {
		ip = ip.WithZone("") // a prefix contains no address with a zone
		if !ip.IsValid() || ip.IsLoopback() || ip.IsUnspecified() {
			continue
		}
		if which.AllOf(model.FamilyOf(ip)) || anyContains(which.Prefixes, ip) {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// primaryIPs returns one address of each family: the configured one, or the
// first of the Node object, or of the machine while there is no Node object.
func primaryIPs(configured netip.Addr, node *model.Node, hostIPs []netip.Addr) []netip.Addr {
	var ips []netip.Addr
	for _, f := range model.Families {
		if configured.IsValid() && model.FamilyOf(configured) == f {
			ips = append(ips, configured)
			continue
		}
		if node != nil {
			if ip := node.PrimaryIP(f); ip.IsValid() {
				ips = append(ips, ip)
			}
			continue
		}
		first := slices.IndexFunc(hostIPs, func(ip netip.Addr) bool {
			return ip.IsGlobalUnicast() && model.FamilyOf(ip) == f
		})
		if first >= 0 {
			ips = append(ips, hostIPs[first])
		}
	}
	return ips
}
