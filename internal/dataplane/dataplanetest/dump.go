package dataplanetest

import (
	"slices"
	"strconv"
	"strings"

	"sluice/internal/plan"
)

// dumpScript shows what modes keep in the kernel. A mode whose mechanism it does not
// show adds its own command.
const dumpScript = `nft list ruleset
for variant in nft legacy; do
	iptables-$variant-save
	ip6tables-$variant-save
done
if test -e /proc/net/ip_vs; then ipvsadm -Sn; fi
for family in -4 -6; do
	ip $family rule | grep 'lookup 51007' || true
	ip $family route show table 51007 2>/dev/null || true
done`

// dump lists what is in the kernel, without the comments, which have the time.
func (n *node) dump() string {
	n.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(n.ns.Run(n.t, "", "sh", "-ec", dumpScript)) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// words are those of a dump in alphabetical order. Two kernels that mean the same
// have the same words, though rules and elements may be in another order.
func words(dump string) []string {
	list := strings.FieldsFunc(dump, func(r rune) bool { return strings.ContainsRune(" \t\n,", r) })
	slices.Sort(list)
	return list
}

// unmentioned returns the frontends whose address or node port is not in a text.
func unmentioned(text string, desired *plan.Desired) (missing []plan.Key) {
	for k := range desired.Frontends {
		if !mentions(text, k) {
			missing = append(missing, k)
		}
	}
	return missing
}

func mentions(text string, k plan.Key) bool {
	if k.NodePort() {
		return strings.Contains(text, strconv.Itoa(int(k.Port)))
	}
	return strings.Contains(text, k.Addr.String())
}
