package scenario

import (
	"context"
	"maps"
	"slices"

	"sluice/test/lab"
)

// Mode is a mode of the proxy, as far as scripts care.
type Mode struct {
	// Proxy is what the flag --proxy-mode is set to.
	Proxy string
	// Flags make the mode follow changes without the pauses that save work on
	// a real node.
	Flags []string
	// Prepare makes a node one on which the proxy chooses the variant: kubelet
	// leaves such a chain, and all who use iptables go by it. Nil for nothing.
	Prepare []string
	// Dump prints all that the mode keeps in the kernel, for "kernel has".
	Dump []string
	// Flush deletes all that the mode keeps in the kernel, and more.
	Flush []string
}

// Modes are the modes that scripts can run in, by name.
var Modes = map[string]Mode{
	"nftables": {
		Proxy: "nftables",
		Flags: minSyncPeriod,
		Dump:  []string{"nft", "list", "ruleset"},
		Flush: []string{"nft", "flush", "ruleset"},
	},
	"iptables-nft":    iptablesMode("nft"),
	"iptables-legacy": iptablesMode("legacy"),
}

var minSyncPeriod = []string{"--iptables-min-sync-period=10ms"}

// iptablesMode is iptables mode on a node whose rules are those of a variant.
func iptablesMode(variant string) Mode {
	shell := func(script string) []string { return []string{"sh", "-ec", script, variant} }
	return Mode{
		Proxy: "iptables",
		Flags: minSyncPeriod,
		Prepare: shell(`for p in iptables ip6tables; do
	for v in nft legacy; do
		hint() { $p-$v -w 10 -t mangle "$1" KUBE-IPTABLES-HINT >/dev/null 2>&1; }
		if [ $v = $0 ]; then hint -S || hint -N; else ! hint -S || hint -X; fi
	done
done`),
		Dump: shell(`iptables-$0-save; ip6tables-$0-save`),
		Flush: shell(`for p in iptables ip6tables; do
	printf '*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n' | $p-$0-restore -w 10
done`),
	}
}

// ModeNames lists the modes, the default one first.
func ModeNames() []string {
	names := slices.Sorted(maps.Keys(Modes))
	slices.Reverse(names)
	return names
}

// PrepareNode prepares node1 of a lab.
func (m Mode) PrepareNode(ctx context.Context, l *lab.Lab) error {
	if m.Prepare == nil {
		return nil
	}
	node, err := l.Host("node1")
	if err != nil {
		return err
	}
	_, err = node.Run(ctx, lab.Command{Args: m.Prepare})
	return err
}

// means tells whether a condition is about a mode: by its name, or by that of
// the proxy mode, which is about all its variants.
func means(condition, mode string) bool {
	return condition == mode || condition == Modes[mode].Proxy
}

// conditions lists what scripts can call modes.
func conditions() []string {
	names := ModeNames()
	for _, m := range Modes {
		names = append(names, m.Proxy)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
