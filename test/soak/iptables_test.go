//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// iptablesCommand returns the command of the variant and family of a listing.
func (s save) command(what, format string, args ...any) act {
	command := []string{s.program, "-w", "10", "-t", s.table}
	return act{what: what, command: append(command, strings.Fields(fmt.Sprintf(format, args...))...)}
}

// tampering with a table, by iptables. It is empty if there is nothing to tamper
// with.
var iptablesActs = []func(*rand.Rand, save) act{
	onOurChain(func(s save, c string, _ *rand.Rand) act { return s.command("chain flushed", "-F %s", c) }),
	onOurChain(func(s save, c string, _ *rand.Rand) act { return s.command("chain deleted", "-X %s", c) }),
	onOurChain(func(s save, c string, rng *rand.Rand) act {
		return s.command("chain renamed", "-E %s %s-%d", c, intruder, rng.IntN(1000))
	}),
	onOurChain(func(s save, c string, rng *rand.Rand) act {
		return s.command("rule inserted", "-I %s -j %s", c, anyTarget(s, rng))
	}),
	onOurChain(func(s save, c string, rng *rand.Rand) act {
		return s.command("rule added", "-A %s -j %s", c, anyTarget(s, rng))
	}),
	onOurRule(func(s save, c string, n int, _ *rand.Rand) act { return s.command("rule deleted", "-D %s %d", c, n) }),
	onOurRule(func(s save, c string, n int, rng *rand.Rand) act {
		return s.command("rule replaced", "-R %s %d -j %s", c, n, anyTarget(s, rng))
	}),
	func(rng *rand.Rand, s save) act {
		jumps := slices.DeleteFunc(slices.Clone(s.rules), func(r string) bool { return strings.HasPrefix(r, "-A KUBE-") || strings.Contains(r, `"`) })
		if len(jumps) == 0 {
			return act{}
		}
		return s.command("jump deleted", "%s", "-D"+strings.TrimPrefix(jumps[rng.IntN(len(jumps))], "-A"))
	},
	func(_ *rand.Rand, s save) act { return s.command("table flushed", "-F") },
	func(_ *rand.Rand, s save) act {
		if len(s.chains) == 0 {
			return act{}
		}
		return act{what: "table emptied", command: []string{s.program + "-restore", "-w", "10"}, input: "*" + s.table + "\nCOMMIT\n"}
	},
	func(rng *rand.Rand, s save) act {
		if s.table != "nat" {
			return act{}
		}
		return s.command("chain like ours added", "-N KUBE-SVC-TAMPERTAMPER%c%c%c%c", 'A'+rng.IntN(26), 'A'+rng.IntN(26), 'A'+rng.IntN(26), 'A'+rng.IntN(26))
	},
}

// anyTarget returns a target that a table supports.
func anyTarget(s save, rng *rand.Rand) string {
	targets := []string{"RETURN", "ACCEPT", "MARK --set-mark 1"}
	if s.table != "nat" {
		targets = append(targets, "DROP")
	}
	return targets[rng.IntN(len(targets))]
}

func onOurChain(do func(save, string, *rand.Rand) act) func(*rand.Rand, save) act {
	return func(rng *rand.Rand, s save) act {
		if len(s.chains) == 0 {
			return act{}
		}
		return do(s, s.chains[rng.IntN(len(s.chains))], rng)
	}
}

// onOurRule selects a rule of one of our chains, by its number.
func onOurRule(do func(s save, chain string, number int, rng *rand.Rand) act) func(*rand.Rand, save) act {
	return onOurChain(func(s save, c string, rng *rand.Rand) act {
		n := 0
		for _, r := range s.rules {
			if strings.HasPrefix(r, "-A "+c+" ") {
				n++
			}
		}
		if n == 0 {
			return act{}
		}
		return do(s, c, 1+rng.IntN(n), rng)
	})
}

// iptablesNFTAct tampers by nft with what iptables-nft made.
func iptablesNFTAct(rng *rand.Rand, s save) act {
	family := "ip"
	if strings.HasPrefix(s.program, "ip6") {
		family = "ip6"
	}
	switch rng.IntN(3) {
	case 0:
		return nftScript("ruleset flushed", "flush ruleset")
	case 1:
		return nftScript("table deleted", "delete table %s %s", family, s.table)
	}
	return nftScript("table put to sleep", "add table %s %s { flags dormant; }", family, s.table)
}

// removeIntruders removes our chains that were renamed: to the proxy they are
// foreign, and they keep other chains in use.
func (n *node) removeIntruders(ctx context.Context) error {
	for _, v := range []string{"nft", "legacy"} {
		for _, family := range iptablesFamilies {
			script := fmt.Sprintf(`%[1]s-save 2>/dev/null | awk '/^[*]/ { table = substr($1, 2) } /^:%[2]s-/ { print table, substr($1, 2) }' |
while read table chain; do
	%[1]s -w 10 -t $table -S | sed -n "s/^-A \\(.* -[jg] $chain\\)$/-D \\1/p" | while read rule; do eval "%[1]s -w 10 -t $table $rule" || true; done
	%[1]s -w 10 -t $table -F $chain; %[1]s -w 10 -t $table -X $chain
done`, family+"-"+v, intruder)
			if _, err := n.run(ctx, "", "sh", "-c", script); err != nil {
				return err
			}
		}
	}
	return nil
}
