package mode

import (
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/dataplane/ipvs"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/dataplane/userspace"
)

// All are the proxy modes, the preferred one first.
var All = []dataplane.Mode{
	nftables.Mode,
	iptables.Mode,
	// After iptables: upstream's rules refer to sets that this mode removes.
	ipvs.Mode,
	userspace.Mode,
}

var upstream = iptables.Mode
