package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Settings is a configuration that was found to be sound, in the values that
// the program works with.
type Settings struct {
	// Plan lacks the NodeName, which is not known from a configuration alone.
	Plan plan.Config
	// MinSyncPeriod is the least time between two updates of the kernel, 0 for
	// no such limit.
	MinSyncPeriod time.Duration
	// SyncPeriod is how often the kernel is compared with what it should hold.
	SyncPeriod time.Duration
	// Warnings are what the administrator may not have meant.
	Warnings []model.Problem
}

// Resolve works out what a configuration means. An error of its is an Errors
// that holds all there is to say.
func Resolve(c *Configuration) (*Settings, error) {
	var n notes
	resolveMode(c, &n)
	s := &Settings{Plan: plan.Config{
		NodePortAddresses: nodePortAddresses(c.NodePortAddresses, &n),
		MasqueradeAll:     c.NFTables.MasqueradeAll,
		MasqueradeBit:     masqueradeBit(c.NFTables.MasqueradeBit, &n),
		NoExternalIPs:     !gates(c.FeatureGates, &n)[AllowServiceExternalIPs],
	}}
	detectLocal(c, &s.Plan, &n)
	s.SyncPeriod, s.MinSyncPeriod = periods(c, &n)
	s.Warnings = n.warnings
	if len(n.errors) > 0 {
		return nil, Errors(n.errors)
	}
	return s, nil
}

func resolveMode(c *Configuration, n *notes) {
	if c.Mode != "" && c.Mode != ModeNFTables {
		n.fail("mode", fmt.Sprintf("proxy mode %q is not available", c.Mode),
			fmt.Sprintf("set --proxy-mode to %s or leave it empty", ModeNFTables))
	}
}

func masqueradeBit(bit *int32, n *notes) uint8 {
	b := ptr.Deref(bit, defaultMasqueradeBit)
	if b < 0 || b > 31 {
		n.fail("nftables.masqueradeBit", fmt.Sprintf("%d is no bit of the packet mark", b),
			"set --iptables-masquerade-bit to a number from 0 to 31")
		return 0
	}
	return uint8(b)
}

func periods(c *Configuration, n *notes) (sync, minSync time.Duration) {
	sync, minSync = c.NFTables.SyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration
	if sync <= 0 {
		n.fail("nftables.syncPeriod", fmt.Sprintf("%v is not longer than nothing", sync),
			"set --iptables-sync-period to a positive duration such as 30s")
	}
	if minSync < 0 {
		n.fail("nftables.minSyncPeriod", fmt.Sprintf("%v is negative", minSync),
			"set --iptables-min-sync-period to 0s for no limit, or to a positive duration")
	}
	if sync > 0 && minSync > sync {
		n.fail("nftables.minSyncPeriod", fmt.Sprintf("%v is longer than the sync period of %v", minSync, sync),
			"set --iptables-min-sync-period to less, or --iptables-sync-period to more")
	}
	return sync, minSync
}

// AllowServiceExternalIPs is the feature gate for the externalIPs of Services.
const AllowServiceExternalIPs = "AllowServiceExternalIPs"

// knownGates are the feature gates and their defaults.
var knownGates = map[string]bool{AllowServiceExternalIPs: true}

func gates(chosen map[string]bool, n *notes) map[string]bool {
	enabled := maps.Clone(knownGates)
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		if _, known := knownGates[name]; !known {
			n.fail("featureGates."+name, "there is no such feature gate",
				"leave it out of --feature-gates; known are "+strings.Join(slices.Sorted(maps.Keys(knownGates)), ", "))
			continue
		}
		enabled[name] = chosen[name]
	}
	return enabled
}
