// Package mode lists the proxy modes. To add a mode, add its value to All.
package mode

import (
	"slices"
	"strings"

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

// Preferred returns the mode to use where the choice is free.
func Preferred() dataplane.Mode { return All[0] }

// Upstream returns the mode that upstream uses where none is chosen.
func Upstream() dataplane.Mode { return iptables.Mode }

// Default returns the mode for a node where none is chosen, as far as can be told
// without touching the kernel: upstream's, if it is installed. If it is free to
// choose, it is the preferred one.
func Default(free bool) dataplane.Mode {
	if free || Upstream().Missing() != nil {
		return Preferred()
	}
	return Upstream()
}

// Find returns the mode of that name, and whether there is one.
func Find(name string) (dataplane.Mode, bool) {
	i := slices.IndexFunc(All, func(m dataplane.Mode) bool { return m.Name == name })
	if i < 0 {
		return dataplane.Mode{}, false
	}
	return All[i], true
}

// Names returns the names of all modes, for people.
func Names() string {
	names := make([]string, len(All))
	for i, m := range All {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}
