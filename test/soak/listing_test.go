//go:build linux

package soak

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

func netipPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// listing is nft's listing of one of our tables.
type listing struct {
	family, name, flags string
	chains              []chain
	sets                []set
}

type chain struct {
	name  string
	base  string // "type nat hook prerouting priority dstnat; policy accept;", if it has a hook
	rules []rule
}

type rule struct{ text, handle string }

// set is a set or map.
type set struct {
	kind, name string
	header     []string
	elements   []string
}

var (
	blockStart = regexp.MustCompile(`^\t(chain|set|map|counter|flowtable) (\S+) \{`)
	handles    = regexp.MustCompile(` ?# handle (\d+)$`)
	stateful   = regexp.MustCompile(` counter packets \d+ bytes \d+| expires \S+`)
)

// listTables lists the tables of nftables mode.
func (n *node) listTables(ctx context.Context) ([]listing, error) {
	tables, err := n.run(ctx, "", "nft", "list", "tables")
	if err != nil {
		return nil, err
	}
	var all []listing
	for line := range strings.Lines(tables) {
		field := strings.Fields(line)
		if len(field) != 3 || !strings.HasPrefix(field[2], "sluice") {
			continue
		}
		text, err := n.run(ctx, "", "nft", "-a", "list", "table", field[1], field[2])
		if err != nil {
			return nil, err
		}
		all = append(all, parseTable(field[1], field[2], text))
	}
	return all, nil
}

// parseTable reads what "nft -a list table" prints.
func parseTable(family, name, text string) listing {
	l := listing{family: family, name: name}
	var kind, within string
	var body []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := blockStart.FindStringSubmatch(line)
		switch {
		case m != nil:
			kind, within, body = m[1], m[2], nil
		case line == "\t}" && kind == "chain":
			l.chains = append(l.chains, parseChain(within, body))
			kind = ""
		case line == "\t}" && kind != "":
			l.sets = append(l.sets, parseSet(kind, within, body))
			kind = ""
		case kind != "":
			body = append(body, strings.TrimSpace(line))
		case strings.HasPrefix(line, "\tflags"):
			l.flags = strings.TrimSpace(line)
		}
	}
	return l
}

func parseChain(name string, body []string) chain {
	c := chain{name: name}
	for _, line := range body {
		m := handles.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "type "):
			c.base = line
		case m != nil:
			c.rules = append(c.rules, rule{handles.ReplaceAllString(line, ""), m[1]})
		}
	}
	return c
}

func parseSet(kind, name string, body []string) set {
	s := set{kind: kind, name: name}
	text := strings.Join(body, "\n")
	head, elements, _ := strings.Cut(text, "elements = {")
	s.header = strings.Split(strings.TrimSpace(head), "\n")
	elements = strings.TrimSuffix(strings.TrimSpace(elements), "}")
	for element := range strings.SplitSeq(elements, ",") {
		if element = strings.TrimSpace(element); element != "" {
			s.elements = append(s.elements, element)
		}
	}
	return s
}

// elementKey returns the key of an element.
func elementKey(element string) string {
	return regexp.MustCompile(` (: |counter |timeout |expires |comment ).*`).ReplaceAllString(element, "")
}

// remembered matches the names of the maps that packets write.
var remembered = regexp.MustCompile(`^(local-)?clients-`)

// intruder starts the names of what tampering adds to tables.
const intruder = "tamper"

// normal returns a table in a canonical order, without what packets change, and
// without its name, which depends on whether it was rebuilt. The index of an
// endpoint depends on history. Unused foreign sets do no harm, and stay.
func (l listing) normal() []string {
	lines := []string{"table " + l.family + " " + l.flags}
	for _, c := range l.chains {
		lines = append(lines, fmt.Sprintf("%s chain %s {%s}", l.family, c.name, c.base))
		for i, r := range c.rules {
			lines = append(lines, fmt.Sprintf("%s chain %s rule %03d %s", l.family, c.name, i, stateful.ReplaceAllString(r.text, "")))
		}
	}
	for _, s := range l.sets {
		if strings.HasPrefix(s.name, intruder) {
			continue
		}
		head := fmt.Sprintf("%s %s %s", l.family, s.kind, s.name)
		lines = append(lines, head+" {"+stateful.ReplaceAllString(strings.Join(s.header, "; "), "")+"}")
		if remembered.MatchString(s.name) {
			continue
		}
		for _, e := range s.elements {
			e = stateful.ReplaceAllString(e, "")
			if strings.HasSuffix(s.name, "endpoints") && !strings.HasSuffix(s.name, "affinity-endpoints") {
				e = regexp.MustCompile(` \. \d+ :`).ReplaceAllString(e, " :")
			}
			lines = append(lines, head+" "+e)
		}
	}
	slices.Sort(lines)
	return lines
}

// save is the output of iptables-save for our chains and the rules that lead to
// them.
type save struct {
	program, table string
	chains         []string
	rules          []string // "-A CHAIN ..."
}

var iptablesFamilies = []string{"iptables", "ip6tables"}

// isOurs reports whether a chain is kube-proxy's, not kubelet's.
func isOurs(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") && !strings.HasPrefix(chain, "KUBE-IPTABLES-HINT")
}

// listSaves lists our rules of a variant of iptables.
func (n *node) listSaves(ctx context.Context, variant string) ([]save, error) {
	var all []save
	for _, program := range iptablesFamilies {
		program += "-" + variant
		text, err := n.run(ctx, "", "sh", "-c", program+"-save 2>/dev/null") // it warns of the other variant
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "*"):
				all = append(all, save{program: program, table: line[1:]})
			case strings.HasPrefix(line, ":") && isOurs(line[1:]):
				s := &all[len(all)-1]
				s.chains = append(s.chains, strings.Fields(line[1:])[0])
			case strings.HasPrefix(line, "-A ") && strings.Contains(line, " KUBE-") && !strings.HasPrefix(line, "-A "+intruder):
				s := &all[len(all)-1]
				s.rules = append(s.rules, line)
			}
		}
	}
	return all, nil
}

func (s save) normal() []string {
	var lines []string
	for _, c := range s.chains {
		lines = append(lines, fmt.Sprintf("%s %s chain %s", s.program, s.table, c))
	}
	slices.Sort(lines)
	position := map[string]int{}
	for _, r := range s.rules {
		chain := strings.Fields(r)[1]
		position[chain]++
		lines = append(lines, fmt.Sprintf("%s %s %s rule %03d %s", s.program, s.table, chain, position[chain], r))
	}
	return lines
}

// variant returns the variant of iptables in an iptables mode, "" in others.
func variant(mode string) string {
	if v, ok := strings.CutPrefix(mode, "iptables-"); ok {
		return v
	}
	return ""
}

// hasTable reports whether a mode has the table of nftables mode.
func hasTable(mode string) bool { return mode == "nftables" || mode == "ipvs" }

// rules returns everything that the mode has in the kernel, in a canonical form.
func (n *node) rules(ctx context.Context) ([]string, error) {
	var lines []string
	if hasTable(n.mode) {
		tables, err := n.listTables(ctx)
		for _, t := range tables {
			lines = append(lines, t.normal()...)
		}
		if err == nil && n.mode == "ipvs" {
			var more []string
			more, err = n.ipvsRules(ctx)
			lines = append(lines, more...)
		}
		slices.Sort(lines)
		return lines, err
	}
	saves, err := n.listSaves(ctx, variant(n.mode))
	slices.SortStableFunc(saves, func(a, b save) int { return cmp.Or(cmp.Compare(a.program, b.program), cmp.Compare(a.table, b.table)) })
	for _, s := range saves {
		lines = append(lines, s.normal()...)
	}
	slices.Sort(lines)
	return lines, err
}

// strayRules returns what other modes left in the kernel, which should be nothing.
// KUBE-MARK-MASQ stays for others beside a table of nftables, and so do tables that are
// empty. Virtual services of IPVS stay while they have connections.
func (n *node) strayRules(ctx context.Context) ([]string, error) {
	var stray []string
	if !hasTable(n.mode) {
		tables, err := n.listTables(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			stray = append(stray, "table "+t.family+" "+t.name)
		}
	}
	for _, v := range []string{"nft", "legacy"} {
		if v == variant(n.mode) {
			continue
		}
		saves, err := n.listSaves(ctx, v)
		if err != nil {
			return nil, err
		}
		for _, s := range saves {
			for _, line := range s.normal() {
				if !hasTable(n.mode) || !strings.Contains(line, "KUBE-MARK-MASQ") {
					stray = append(stray, line)
				}
			}
		}
	}
	return stray, nil
}
