package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/component-base/featuregate"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/dataplane"
	"sluice/internal/mode"
	"sluice/internal/plan"
)

// Settings of the rules in the kernel, and how often they are updated and checked.

// modeOf returns the mode of a complete configuration.
func modeOf(c *Configuration, n *notes) dataplane.Mode {
	m, ok := mode.Find(string(c.Mode))
	if !ok {
		n.fail(modePath, fmt.Sprintf("proxy mode %q is not available", c.Mode),
			fmt.Sprintf("set --proxy-mode to one of %s, or leave it empty", mode.Names()))
		return mode.Preferred() // so that the rest can be checked
	}
	return m
}

// checkModeGate refuses a mode whose feature gate is off.
func checkModeGate(m dataplane.Mode, features featuregate.FeatureGate, n *notes) {
	if gate := m.Configuration.Gate; gate != "" && !features.Enabled(featuregate.Feature(gate)) {
		n.fail(modePath, fmt.Sprintf("feature gate %s is off, which forbids proxy mode %s", gate, m.Name),
			fmt.Sprintf("set --proxy-mode to nftables, or leave %s out of --feature-gates", gate))
	}
}

func planConfig(c *Configuration, m dataplane.Mode, features featuregate.FeatureGate, n *notes) plan.Config {
	where := nodePortAddresses(c.NodePortAddresses, n)
	where.Loopback = loopbackNodePorts(c, m, where, n)
	section := m.Configuration.MasqueradeSection
	p := plan.Config{
		NodePortAddresses: where,
		MasqueradeAll:     at(c, section+".masqueradeAll").Bool(),
		MasqueradeBit:     uint8(at(c, section+".masqueradeBit").Elem().Int() & 31),
		NoExternalIPs:     !features.Enabled(AllowServiceExternalIPs),
		DropInvalid:       !c.Conntrack.TCPBeLiberal,
	}
	for _, s := range settings {
		if strings.HasSuffix(s.path, ".masqueradeBit") {
			checkMasqueradeBit(s.path, int32(at(c, s.path).Elem().Int()), uses(m, s.path), n)
		}
	}
	if uses(m, "ipvs.scheduler") {
		p.Balancer.Default = c.IPVS.Scheduler
	}
	// As upstream: its nftables mode has listeners for what is local, its iptables mode the rules of
	// the node's other connections.
	p.LoopbackLocal = !m.Configuration.LocalhostNodePorts
	if on := c.FeatureGates[string(LocalhostNodePorts)]; on && m.Configuration.CountsLoopback {
		p.UnservedLoopback = plan.UnservedCount
	}
	if m.Adjust != nil {
		m.Adjust(&p)
	}
	localDetector(c, m, &p, n)
	return p
}

func checkMasqueradeBit(field string, bit int32, matters bool, n *notes) {
	if bit < 0 || bit > 31 {
		n.failIf(matters, field, fmt.Sprintf("%d is not a bit of the packet mark", bit),
			"set --iptables-masquerade-bit to a number from 0 to 31")
	}
}

// periods returns the sync period and the minimum sync period in a mode. If none is written,
// those of the other mode that may be meant are checked, too.
func periods(c *Configuration, written v1alpha1.ProxyMode, m dataplane.Mode, n *notes) (sync, minSync time.Duration) {
	if written == "" {
		for _, other := range []dataplane.Mode{mode.Preferred(), mode.Upstream()} {
			if section := other.Configuration.Section; section != m.Configuration.Section {
				checkPeriods(c, section, false, n)
			}
		}
	}
	return checkPeriods(c, m.Configuration.Section, true, n)
}

func checkPeriods(c *Configuration, section string, matters bool, n *notes) (sync, minSync time.Duration) {
	syncField, minField := section+".syncPeriod", section+".minSyncPeriod"
	period := func(field string) time.Duration { return at(c, field).Interface().(metav1.Duration).Duration }
	sync, minSync = period(syncField), period(minField)
	if sync <= 0 {
		n.failIf(matters, syncField, fmt.Sprintf("%v is not positive", sync), "set --"+flagOf(syncField)+" to a positive duration such as 30s")
	}
	if minSync < 0 {
		n.failIf(matters, minField, fmt.Sprintf("%v is negative", minSync), "set --"+flagOf(minField)+" to 0s for no limit, or to a positive duration")
	}
	if matters && sync > 0 && minSync > sync {
		n.fail(minField, fmt.Sprintf("%v is longer than the sync period of %v", minSync, sync), "make it shorter, or the sync period longer")
	}
	return sync, minSync
}

// ipvsSettings returns the section of ipvs mode.
func ipvsSettings(c *Configuration, m dataplane.Mode, n *notes) dataplane.IPVS {
	matters := uses(m, "ipvs.excludeCIDRs")
	section := &c.IPVS
	s := dataplane.IPVS{
		Scheduler: section.Scheduler, StrictARP: section.StrictARP,
		TCPTimeout: section.TCPTimeout.Duration, TCPFinTimeout: section.TCPFinTimeout.Duration, UDPTimeout: section.UDPTimeout.Duration,
	}
	for i, cidr := range section.ExcludeCIDRs {
		field := fmt.Sprintf("ipvs.excludeCIDRs[%d]", i)
		p, err := parseCIDR(cidr)
		if err != nil {
			n.failIf(matters, field, err.Error(), orRangeOf(cidr, "use a range such as 10.96.0.0/12"))
			continue
		}
		noteRange(field, cidr, p, n)
		s.ExcludeCIDRs = append(s.ExcludeCIDRs, p)
	}
	if matters && s.Scheduler != "" && !slices.Contains(schedulers, s.Scheduler) {
		n.warn("ipvs.scheduler", fmt.Sprintf("Linux has no scheduler %q: unless a module ip_vs_%s was added to this node, no Service can be served", s.Scheduler, s.Scheduler),
			"set --ipvs-scheduler to one of "+strings.Join(schedulers, ", "))
	}
	checkTimeout("ipvs.tcpTimeout", s.TCPTimeout, matters, n)
	checkTimeout("ipvs.tcpFinTimeout", s.TCPFinTimeout, matters, n)
	checkTimeout("ipvs.udpTimeout", s.UDPTimeout, matters, n)
	return s
}

// schedulers are those of Linux.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos"}

// minPorts is how many ports the proxy needs, twice: once for a process that is ending.
const minPorts = 8

// portRange returns the ports that the proxy may listen on.
func portRange(c *Configuration, m dataplane.Mode, n *notes) (ports dataplane.PortRange) {
	const remedy = "set --proxy-port-range to a range of 8 or more ports such as 40000-40007, or leave it empty"
	all, err := net.ParsePortRange(c.PortRange)
	switch {
	case err != nil:
		n.failIf(m.Configuration.PortRange, portRangePath, fmt.Sprintf("%q is not a range of ports", c.PortRange), remedy)
	case all.Size == 0: // any
	case all.Size < minPorts:
		n.failIf(m.Configuration.PortRange, portRangePath, fmt.Sprintf("%d ports are too few", all.Size), remedy)
	default:
		ports = dataplane.PortRange{First: uint16(all.Base), Last: uint16(all.Base + all.Size - 1)}
	}
	return ports
}
