package iptables

import (
	"errors"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// invalidCounter is the name of the nfacct counter of dropped invalid packets, the
// same as upstream's.
const invalidCounter = "ct_state_invalid_dropped_pkts"

// Errors of frontends that cannot be programmed on this host.
var (
	errNoFamily   = errors.New("there is no iptables for its IP family here (install ip6tables, and use a kernel with it)")
	errNoAffinity = errors.New("session affinity needs the match recent of iptables (load the module xt_recent, or use a kernel with CONFIG_NETFILTER_XT_MATCH_RECENT)")
	errNoSCTP     = errors.New("SCTP needs the match sctp of iptables (load the module xt_sctp, or use a kernel with CONFIG_NETFILTER_XT_MATCH_SCTP)")
)

// lacks returns an error if a frontend needs a feature that is not available.
// Without it, such frontends would have to be found by refused writes, one by one.
func lacks(features *iptables.Features, f *plan.Frontend) error {
	switch {
	case f.Affinity > 0 && !features.Recent:
		return errNoAffinity
	case f.Protocol == model.SCTP && !features.SCTP:
		return errNoSCTP
	}
	return nil
}
