//go:build linux

package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

func nftScript(what, format string, args ...any) act {
	return act{what, []string{"nft", "-f", "-"}, fmt.Sprintf(format, args...)}
}

// tampering with a table, by nft. It is empty if there is nothing to tamper with.
var nftActs = []func(*rand.Rand, listing) act{
	onChain("chain flushed", func(t listing, c chain, _ *rand.Rand) string {
		return fmt.Sprintf("flush chain %s %s %s", t.family, t.name, c.name)
	}),
	onChain("chain deleted", func(t listing, c chain, _ *rand.Rand) string {
		return fmt.Sprintf("flush chain %[1]s %[2]s %[3]s\ndelete chain %[1]s %[2]s %[3]s", t.family, t.name, c.name)
	}),
	onChain("chain renamed", func(t listing, c chain, rng *rand.Rand) string {
		return fmt.Sprintf("rename chain %s %s %s %s-%d", t.family, t.name, c.name, intruder, rng.IntN(1000))
	}),
	onBaseChain("policy drop", func(t listing, c chain, _ *rand.Rand) string {
		return fmt.Sprintf("add chain %s %s %s { policy drop; }", t.family, t.name, c.name)
	}),
	onBaseChain("base chain deleted", func(t listing, c chain, _ *rand.Rand) string {
		return fmt.Sprintf("delete chain %s %s %s", t.family, t.name, c.name)
	}),
	onBaseChain("base chain with another priority", otherPriority),
	onRule("rule deleted", func(t listing, c chain, r rule, _ *rand.Rand) string {
		return fmt.Sprintf("delete rule %s %s %s handle %s", t.family, t.name, c.name, r.handle)
	}),
	onRule("rule replaced", func(t listing, c chain, r rule, rng *rand.Rand) string {
		return fmt.Sprintf("replace rule %s %s %s handle %s %s", t.family, t.name, c.name, r.handle, anyVerdict(rng))
	}),
	onRule("rule doubled", func(t listing, c chain, r rule, _ *rand.Rand) string {
		return fmt.Sprintf("add rule %s %s %s %s", t.family, t.name, c.name, stateful.ReplaceAllString(r.text, ""))
	}),
	onChain("rule inserted", func(t listing, c chain, rng *rand.Rand) string {
		return fmt.Sprintf("insert rule %s %s %s %s", t.family, t.name, c.name, anyVerdict(rng))
	}),
	onChain("rule added", func(t listing, c chain, rng *rand.Rand) string {
		return fmt.Sprintf("add rule %s %s %s %s", t.family, t.name, c.name, anyVerdict(rng))
	}),
	onSet("set flushed", func(t listing, s set, _ *rand.Rand) string {
		return fmt.Sprintf("flush %s %s %s %s", s.kind, t.family, t.name, s.name)
	}),
	onSet("set deleted", func(t listing, s set, _ *rand.Rand) string {
		return fmt.Sprintf("delete %s %s %s %s", s.kind, t.family, t.name, s.name)
	}),
	onElement("element deleted", func(t listing, s set, e string, _ *rand.Rand) string {
		return fmt.Sprintf("delete element %s %s %s { %s }", t.family, t.name, s.name, elementKey(e))
	}),
	onElement("element changed", changedElement),
	onElement("element added", addedElement),
	func(_ *rand.Rand, t listing) act {
		return nftScript("table flushed", "flush table %s %s", t.family, t.name)
	},
	func(_ *rand.Rand, t listing) act {
		return nftScript("table deleted", "delete table %s %s", t.family, t.name)
	},
	func(_ *rand.Rand, t listing) act {
		return nftScript("table put to sleep", "add table %s %s { flags dormant; }", t.family, t.name)
	},
	func(*rand.Rand, listing) act { return nftScript("ruleset flushed", "flush ruleset") },
	func(rng *rand.Rand, t listing) act {
		hook := []string{"prerouting", "input", "forward", "output", "postrouting"}[rng.IntN(5)]
		return nftScript("base chain added", "add chain %s %s %s-%d { type filter hook %s priority %d; policy drop; }",
			t.family, t.name, intruder, rng.IntN(1000), hook, rng.IntN(400)-200)
	},
	func(rng *rand.Rand, t listing) act {
		return nftScript("chain added", "add chain %s %s %s-%d", t.family, t.name, intruder, rng.IntN(1000))
	},
	func(rng *rand.Rand, t listing) act {
		return nftScript("set added", "add set %s %s %s-%d { type inet_service; }", t.family, t.name, intruder, rng.IntN(1000))
	},
}

// anyVerdict is a rule that does something to every packet, or nothing.
func anyVerdict(rng *rand.Rand) string {
	return []string{"drop", "accept", "return", "counter", "meta mark set 0x1", "ct state new drop", "meta l4proto udp drop"}[rng.IntN(7)]
}

// otherPriority recreates a base chain with the same rules and another priority.
func otherPriority(t listing, c chain, rng *rand.Rand) string {
	var b strings.Builder
	fields := strings.Fields(c.base) // type T hook H priority P; policy ...
	if len(fields) < 4 {
		return ""
	}
	fmt.Fprintf(&b, "delete chain %[1]s %[2]s %[3]s\nadd chain %[1]s %[2]s %[3]s { type %s hook %s priority %d; policy accept; }\n",
		t.family, t.name, c.name, fields[1], fields[3], rng.IntN(100)-50)
	for _, r := range c.rules {
		fmt.Fprintf(&b, "add rule %s %s %s %s\n", t.family, t.name, c.name, stateful.ReplaceAllString(r.text, ""))
	}
	return b.String()
}

// changedElement gives an element of a map another value.
func changedElement(t listing, s set, e string, _ *rand.Rand) string {
	key := elementKey(e)
	value := "drop"
	switch {
	case s.kind != "map":
		return ""
	case !strings.Contains(strings.Join(s.header, " "), "verdict"):
		value = map[string]string{"ip": "10.9.9.9 . 99", "ip6": "fd00::99 . 99"}[t.family]
	}
	return fmt.Sprintf("delete element %[1]s %[2]s %[3]s { %[4]s }\nadd element %[1]s %[2]s %[3]s { %[4]s : %[5]s }", t.family, t.name, s.name, key, value)
}

// addedElement adds an element similar to another.
func addedElement(t listing, s set, e string, rng *rand.Rand) string {
	fields := strings.Split(stateful.ReplaceAllString(e, ""), " . ")
	if len(fields) < 3 {
		return ""
	}
	// The third part of most keys is a port.
	rest := strings.TrimLeft(fields[2], "0123456789")
	fields[2] = fmt.Sprint(1000+rng.IntN(1000)) + rest
	return fmt.Sprintf("add element %s %s %s { %s }", t.family, t.name, s.name, strings.Join(fields, " . "))
}

func onChain(what string, script func(listing, chain, *rand.Rand) string) func(*rand.Rand, listing) act {
	return func(rng *rand.Rand, t listing) act {
		if len(t.chains) == 0 {
			return act{}
		}
		return filled(what, script(t, t.chains[rng.IntN(len(t.chains))], rng))
	}
}

func onBaseChain(what string, script func(listing, chain, *rand.Rand) string) func(*rand.Rand, listing) act {
	return func(rng *rand.Rand, t listing) act {
		t.chains = slices.DeleteFunc(slices.Clone(t.chains), func(c chain) bool { return c.base == "" })
		return onChain(what, script)(rng, t)
	}
}

func onRule(what string, script func(listing, chain, rule, *rand.Rand) string) func(*rand.Rand, listing) act {
	return onChain(what, func(t listing, c chain, rng *rand.Rand) string {
		if len(c.rules) == 0 {
			return ""
		}
		return script(t, c, c.rules[rng.IntN(len(c.rules))], rng)
	})
}

func onSet(what string, script func(listing, set, *rand.Rand) string) func(*rand.Rand, listing) act {
	return func(rng *rand.Rand, t listing) act {
		if len(t.sets) == 0 {
			return act{}
		}
		return filled(what, script(t, t.sets[rng.IntN(len(t.sets))], rng))
	}
}

func onElement(what string, script func(listing, set, string, *rand.Rand) string) func(*rand.Rand, listing) act {
	return func(rng *rand.Rand, t listing) act {
		t.sets = slices.DeleteFunc(slices.Clone(t.sets), func(s set) bool { return len(s.elements) == 0 })
		return onSet(what, func(t listing, s set, rng *rand.Rand) string {
			return script(t, s, s.elements[rng.IntN(len(s.elements))], rng)
		})(rng, t)
	}
}

func filled(what, script string) act {
	if script == "" {
		return act{}
	}
	return nftScript(what, "%s", script)
}
