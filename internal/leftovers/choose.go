package leftovers

import (
	"maps"
	"slices"
)

// ruleset is a table as far as it matters here: its chains, and which rules
// lead from one into another.
type ruleset struct {
	base  map[string]bool // every chain, and whether the kernel calls it by itself
	jumps []jump
}

// jump is a rule that leads into another chain.
type jump struct {
	from, to string
	rule     int // what its reader calls it
}

// removal is what is to be removed from a table.
type removal struct {
	rules  []jump   // in base chains
	chains []string // with all their rules
	// kept are kube-proxy's chains that stay, because somebody else's chain, or
	// one that stays for that reason, leads into them.
	kept map[string]string
}

func (r *removal) empty() bool { return len(r.rules) == 0 && len(r.chains) == 0 }

// choose finds the chains with these names that are of no use to anybody else.
func choose(table ruleset, names chainNames) removal {
	r := removal{kept: map[string]string{}}
	proxys := func(chain string) bool { return names.has(chain) && !table.base[chain] }
	inner := map[string][]string{} // where kube-proxy's chains lead
	var used []string
	keep := func(chain, by string) {
		if _, done := r.kept[chain]; !done {
			r.kept[chain] = by
			used = append(used, chain)
		}
	}
	for _, j := range table.jumps {
		switch {
		case !proxys(j.to):
		case proxys(j.from):
			inner[j.from] = append(inner[j.from], j.to)
		case table.base[j.from] && slices.Contains(names.entry, j.to):
			r.rules = append(r.rules, j)
		default:
			keep(j.to, j.from)
		}
	}
	for len(used) > 0 {
		chain := used[0]
		used = used[1:]
		for _, next := range inner[chain] {
			keep(next, chain)
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(table.base)) {
		if _, kept := r.kept[chain]; !kept && proxys(chain) {
			r.chains = append(r.chains, chain)
		}
	}
	return r
}
