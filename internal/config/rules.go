package config

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/featuregate"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/plan"
)

// What concerns the rules in the kernel, and how often they are looked after.

func mode(c *Configuration, n *notes) v1alpha1.ProxyMode {
	if !slices.Contains(modes, c.Mode) {
		n.fail("mode", fmt.Sprintf("proxy mode %q is not available", c.Mode),
			fmt.Sprintf("set --proxy-mode to one of %s, or leave it empty", modeNames()))
	}
	return c.Mode
}

func planConfig(c *Configuration, features featuregate.FeatureGate, n *notes) plan.Config {
	all, bit := c.NFTables.MasqueradeAll, c.NFTables.MasqueradeBit
	if c.Mode == ModeIPTables || c.Mode == ModeIPVS {
		all, bit = c.IPTables.MasqueradeAll, c.IPTables.MasqueradeBit
	}
	where := nodePortAddresses(c.NodePortAddresses, n)
	where.Loopback = loopbackNodePorts(c, where, n)
	p := plan.Config{
		NodePortAddresses: where,
		MasqueradeAll:     all,
		MasqueradeBit:     uint8(*bit & 31),
		NoExternalIPs:     !features.Enabled(AllowServiceExternalIPs),
		// As upstream: in nftables mode tcpBeLiberal is the only way.
		DropInvalid: c.Mode == ModeIPTables && !c.Conntrack.TCPBeLiberal,
		// As upstream: iptables mode knows of nothing but its frontends.
		FrontendsOnly: c.Mode == ModeIPTables,
	}
	checkMasqueradeBit("iptables.masqueradeBit", *c.IPTables.MasqueradeBit, c.Mode != ModeNFTables, n)
	checkMasqueradeBit("nftables.masqueradeBit", *c.NFTables.MasqueradeBit, c.Mode == ModeNFTables, n)
	detectLocal(c, &p, n)
	return p
}

func checkMasqueradeBit(field string, bit int32, matters bool, n *notes) {
	if bit < 0 || bit > 31 {
		n.failIf(matters, field, fmt.Sprintf("%d is no bit of the packet mark", bit),
			"set --iptables-masquerade-bit, or the field, to a number from 0 to 31")
	}
}

// periods returns how often the kernel is looked after in the mode.
func periods(c *Configuration, n *notes) (sync, minSync time.Duration) {
	sections := []struct {
		mode          v1alpha1.ProxyMode
		sync, minSync time.Duration
	}{
		{ModeNFTables, c.NFTables.SyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration},
		{ModeIPTables, c.IPTables.SyncPeriod.Duration, c.IPTables.MinSyncPeriod.Duration},
		{ModeIPVS, c.IPVS.SyncPeriod.Duration, c.IPVS.MinSyncPeriod.Duration},
	}
	for _, s := range sections {
		if s.mode == c.Mode {
			sync, minSync = s.sync, s.minSync
			checkPeriods(s.mode, sync, minSync, n)
		}
	}
	return sync, minSync
}

func checkPeriods(mode v1alpha1.ProxyMode, sync, minSync time.Duration, n *notes) {
	syncField, minField := string(mode)+".syncPeriod", string(mode)+".minSyncPeriod"
	if sync <= 0 {
		n.fail(syncField, fmt.Sprintf("%v is not longer than nothing", sync),
			"set --iptables-sync-period, or the field, to a positive duration such as 30s")
	}
	if minSync < 0 {
		n.fail(minField, fmt.Sprintf("%v is negative", minSync),
			"set --iptables-min-sync-period, or the field, to 0s for no limit, or to a positive duration")
	}
	if sync > 0 && minSync > sync {
		n.fail(minField, fmt.Sprintf("%v is longer than the sync period of %v", minSync, sync),
			"make it shorter, or the sync period longer")
	}
}

// checkIPVS checks the section of ipvs mode.
func checkIPVS(c *Configuration, n *notes) {
	matters := c.Mode == ModeIPVS
	for i, cidr := range c.IPVS.ExcludeCIDRs {
		if _, err := parseCIDR(cidr); err != nil {
			n.failIf(matters, fmt.Sprintf("ipvs.excludeCIDRs[%d]", i), err.Error(), "use a range such as 10.96.0.0/12")
		}
	}
	checkTimeout("ipvs.tcpTimeout", c.IPVS.TCPTimeout.Duration, matters, n)
	checkTimeout("ipvs.tcpFinTimeout", c.IPVS.TCPFinTimeout.Duration, matters, n)
	checkTimeout("ipvs.udpTimeout", c.IPVS.UDPTimeout.Duration, matters, n)
}
