package scenario

import (
	"maps"
	"slices"
)

// Mode is a mode of the proxy, as far as scripts care.
type Mode struct {
	// Flags make the mode follow changes without the pauses that save work on
	// a real node.
	Flags []string
	// Dump prints all that the mode keeps in the kernel, for "kernel has".
	Dump []string
	// Flush deletes all that the mode keeps in the kernel.
	Flush []string
}

// Modes are the modes that scripts can run in, by the name that the flag
// --proxy-mode takes.
var Modes = map[string]Mode{
	"nftables": {
		Flags: []string{"--iptables-min-sync-period=10ms"},
		Dump:  []string{"nft", "list", "ruleset"},
		Flush: []string{"nft", "flush", "ruleset"},
	},
}

func modeNames() []string { return slices.Sorted(maps.Keys(Modes)) }
