//go:build linux

package scenario

import (
	"context"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/mode"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Mode is a mode of the proxy, in one of its variants.
type Mode struct {
	dataplane.Mode
	Variant string // empty if the mode has none
	// Flags make the mode follow changes without the pauses that save work on
	// a real node.
	Flags []string
	// Prepare makes a node one on which the proxy chooses the variant: kubelet
	// leaves such a chain, and all who use iptables go by it. Nil for nothing.
	Prepare []string
	// Linger is how long the kernel may keep what it had for connections that ended:
	// checks are tried again for that much longer.
	Linger time.Duration
	// InProcess says that connections and session affinity end with the process.
	InProcess bool
	// Dump prints all that the mode keeps in the kernel, for "kernel has".
	Dump []string
	// Flush deletes all that the mode keeps in the kernel, and more.
	Flush []string
}

// Modes are the modes that scripts can run in, by name: all modes of the proxy, in
// each of their variants.
var Modes = func() map[string]Mode {
	modes := map[string]Mode{}
	for _, m := range mode.All {
		for _, variant := range variants(m) {
			node, ok := nodes[m.Name]
			if !ok {
				panic("scenario: mode " + m.Name + " is missing in nodes")
			}
			modes[nameOf(m, variant)] = node(m, variant)
		}
	}
	return modes
}()

// nodes are how a mode and variant is tested on a node, by the name of the mode.
var nodes = map[string]func(m dataplane.Mode, variant string) Mode{
	"nftables":  onNFTables,
	"iptables":  onIPTables,
	"ipvs":      onIPVS,
	"userspace": onUserspace,
}

// variants are those of a mode: one without a name if it has none.
func variants(m dataplane.Mode) []string {
	if m.Variants == nil {
		return []string{""}
	}
	return m.Variants
}

func nameOf(m dataplane.Mode, variant string) string {
	if variant == "" {
		return m.Name
	}
	return m.Name + "-" + variant
}

var minSyncPeriod = []string{"--iptables-min-sync-period=10ms"}

func onNFTables(m dataplane.Mode, _ string) Mode {
	return Mode{
		Mode:  m,
		Flags: minSyncPeriod,
		Dump:  []string{"nft", "list", "ruleset"},
		Flush: []string{"nft", "flush", "ruleset"},
	}
}

func onUserspace(m dataplane.Mode, variant string) Mode {
	node := onNFTables(m, variant)
	node.InProcess = true
	return node
}

func onIPVS(m dataplane.Mode, _ string) Mode {
	return Mode{
		Mode:  m,
		Flags: []string{"--ipvs-min-sync-period=10ms"},
		// IPVS forgets an SCTP association that was only begun after a minute, and a
		// closed connection after ten seconds. Virtual services without connections are
		// removed 5 s later at most.
		Linger: 70 * time.Second,
		// Without what drains: it is there as long as connections need it.
		Dump: []string{"sh", "-ec", `nft list ruleset
ipvsadm -Sn | while read -r line; do
	case $line in
	-A*) service=$line ;;
	*"-w 0") ;;
	*) if [ "$service" ]; then echo "$service"; fi; service=; echo "$line" ;;
	esac
done`},
		// ipvsadm -C would end all connections: the kernel forgets those of destinations
		// that are deleted.
		Flush: []string{"nft", "flush", "ruleset"},
	}
}

// onIPTables is for a node whose rules are those of a variant of iptables.
func onIPTables(m dataplane.Mode, variant string) Mode {
	shell := func(script string) []string { return []string{"sh", "-ec", script, variant} }
	return Mode{
		Mode:    m,
		Variant: variant,
		Flags:   minSyncPeriod,
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

// ModeNames lists the modes, the preferred one first.
func ModeNames() []string {
	var names []string
	for _, m := range mode.All {
		for _, variant := range variants(m) {
			names = append(names, nameOf(m, variant))
		}
	}
	return names
}

// ModesVariable names the environment variable with the modes to run tests in, separated by
// commas.
const ModesVariable = "SLUICE_MODES"

// ModesFor lists the modes to run a test in: those that ModesVariable names, in a short run
// the preferred one, and else all. The variants of a mode write the same rules with other
// programs, which is tested where the programs are; so a test runs in one of them, which its
// name decides, unless everything is to be tested, or another kernel.
func ModesFor(test string) []string {
	if wanted := os.Getenv(ModesVariable); wanted != "" {
		return strings.Split(wanted, ",")
	}
	if testkit.Short() {
		return ModeNames()[:1]
	}
	var names []string
	for _, m := range mode.All {
		variants := variants(m)
		if !testkit.Full() && !testkit.InGuest() {
			variants = variants[draw(test, len(variants)):][:1]
		}
		for _, variant := range variants {
			names = append(names, nameOf(m, variant))
		}
	}
	return names
}

// draw returns a number below n that a name decides.
func draw(name string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
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

// means reports whether a condition is about a mode: by its name, or by that of
// the proxy mode, which is about all its variants.
func means(condition, mode string) bool {
	return condition == mode || condition == Modes[mode].Name
}

// conditions lists what scripts can call modes.
func conditions() []string {
	names := ModeNames()
	for _, m := range Modes {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
