package ipvs

import (
	"golang.org/x/sys/unix"

	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// target has the table leave packets to IPVS.
var target = &nftables.Target{
	Name: "ipvs",
	// After IPVS (priorities 98 and 99), which takes what is for it. What it does not take
	// must not reach a socket of the node.
	Input: nft.Chain{Name: "filter-input", Type: "filter", Hook: unix.NF_INET_LOCAL_IN, Priority: 101},
	Rules: func(f model.Family, _ *plan.Settings) nftables.TargetRules {
		return nftables.TargetRules{
			Route: []nft.Rule{{Exprs: nft.Exprs{}.Accept()}},
			Input: nftables.RejectUnserved(f),
		}
	},
}
