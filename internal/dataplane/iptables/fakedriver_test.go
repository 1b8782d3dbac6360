//go:build linux

package iptables

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// fakeDriver understands the input of iptables-restore as far as we write it, and is as
// strict as the kernel: a table with rules that lead nowhere is refused as a whole.
type fakeDriver struct {
	tables map[iptables.Table]*fakeTable
	// refuse returns a reason to refuse a line, "" for none.
	refuse func(line string) string
	// form changes how rules are listed.
	form func(rule string) string
	// mute omits the line number in refusals, as legacy does.
	mute bool
	// onWrite is called after each write.
	onWrite    func()
	writes     int
	generation uint32
}

type fakeTable struct {
	builtin []string
	chains  map[string][]string // rules without -A and the chain
}

func newFakeDriver() *fakeDriver {
	h := &fakeDriver{tables: map[iptables.Table]*fakeTable{}}
	for _, f := range model.Families {
		for name, builtin := range map[string][]string{
			nat:    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
			filter: {"INPUT", "FORWARD", "OUTPUT"},
			mangle: {"PREROUTING"},
		} {
			t := &fakeTable{builtin: builtin, chains: map[string][]string{}}
			for _, b := range builtin {
				t.chains[b] = nil
			}
			h.tables[iptables.Table{Family: f, Name: name}] = t
		}
	}
	return h
}

// dataplane opens a Dataplane on the fake.
func (h *fakeDriver) dataplane(t testing.TB) *Dataplane {
	t.Helper()
	d := New(Options{Logger: logr.Discard()})
	d.driver, d.monitor, d.families = h, fakeMonitor{h}, model.Families[:]
	d.batch = math.MaxInt
	d.features = iptables.Features{RandomFully: true, BPF: true, NFAcct: true, Recent: true, SCTP: true}
	t.Cleanup(func() { d.Close() })
	return d
}

// fakeMonitor counts writes, as nftables does.
type fakeMonitor struct{ *fakeDriver }

func (m fakeMonitor) Generation(context.Context) (iptables.Generation, error) {
	return iptables.Generation{NFT: m.generation}, nil
}

func (m fakeMonitor) Expected(before iptables.Generation, _ iptables.Table, _ int) iptables.Generation {
	before.NFT++
	return before
}

func (m fakeMonitor) Judge(_, _ iptables.Generation) iptables.Verdict        { return iptables.Unknown }
func (m fakeMonitor) Checksums(context.Context) (*iptables.Checksums, error) { return nil, nil }
func (m fakeMonitor) Dormant(context.Context) ([]nft.Table, error)           { return nil, nil }
func (m fakeMonitor) Wake(context.Context, []nft.Table) error                { return nil }
func (m fakeMonitor) Listen(context.Context, bool) error                     { return nil }
func (m fakeMonitor) Close() error                                           { return nil }

func (h *fakeDriver) List(_ context.Context, t iptables.Table) (*iptables.Listing, error) {
	var b bytes.Buffer
	h.tables[t].print(&b, t.Name)
	text := b.Bytes()
	if h.form != nil {
		text = []byte(h.form(string(text)))
	}
	return iptables.ParseListing(text, t.Name)
}

func (h *fakeDriver) Rules(_ context.Context, t iptables.Table, chain string) ([]string, error) {
	var rules []string
	for _, r := range h.tables[t].chains[chain] {
		rules = append(rules, "-A "+chain+" "+r)
	}
	return rules, nil
}

func (h *fakeDriver) RemoveChains(_ context.Context, _ logr.Logger, f model.Family, _ iptables.Chains) error {
	return fmt.Errorf("the fake cannot remove chains of %s", f)
}

func (t *fakeTable) print(b *bytes.Buffer, name string) {
	fmt.Fprintf(b, "*%s\n", name)
	names := slices.Sorted(maps.Keys(t.chains))
	for _, c := range names {
		policy := "-"
		if slices.Contains(t.builtin, c) {
			policy = "ACCEPT"
		}
		fmt.Fprintf(b, ":%s %s [0:0]\n", c, policy)
	}
	for _, c := range names {
		for _, r := range t.chains[c] {
			fmt.Fprintf(b, "-A %s %s\n", c, r)
		}
	}
	b.WriteString("COMMIT\n")
}

// dump prints all tables.
func (h *fakeDriver) dump() string {
	var b bytes.Buffer
	for _, f := range model.Families {
		for _, name := range iptables.TableNames {
			fmt.Fprintf(&b, "# %s\n", f)
			h.tables[iptables.Table{Family: f, Name: name}].print(&b, name)
		}
	}
	return b.String()
}

func (h *fakeDriver) Restore(_ context.Context, f model.Family, input io.Reader) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	h.writes++
	var name string
	var t *fakeTable
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		fail := func(format string, args ...any) error {
			if h.mute {
				return &iptables.CommandError{Path: "fake", Message: "the kernel says no", ExitCode: 1}
			}
			return &iptables.CommandError{Path: "fake", Message: fmt.Sprintf("line %d: ", i+1) + fmt.Sprintf(format, args...), ExitCode: 1}
		}
		if h.refuse != nil {
			if reason := h.refuse(line); reason != "" {
				return fail("%s", reason)
			}
		}
		if table, ok := strings.CutPrefix(line, "*"); ok {
			name, t = table, h.tables[iptables.Table{Family: f, Name: table}].clone()
			continue
		}
		if line == "COMMIT" {
			if reason := t.check(); reason != "" {
				return fail("%s", reason)
			}
			h.tables[iptables.Table{Family: f, Name: name}] = t
			h.generation++
			continue
		}
		if reason := t.do(line); reason != "" {
			return fail("%s in %q", reason, line)
		}
	}
	if h.onWrite != nil {
		h.onWrite()
	}
	return nil
}

func (t *fakeTable) clone() *fakeTable {
	return &fakeTable{t.builtin, maps.Clone(t.chains)}
}

// do executes a line, or returns a reason to refuse it.
func (t *fakeTable) do(line string) string {
	word, rest, _ := strings.Cut(line, " ")
	if chain, ok := strings.CutPrefix(word, ":"); ok {
		if len(chain) > maxNameLen {
			return "the name is too long"
		}
		t.chains[chain] = nil
		return ""
	}
	chain, rule, _ := strings.Cut(rest, " ")
	rules, there := t.chains[chain]
	if !there {
		return "there is no such chain"
	}
	switch word {
	case "-A":
		t.chains[chain] = append(slices.Clip(rules), rule)
	case "-I":
		t.chains[chain] = append([]string{rule}, rules...)
	case "-D":
		i := slices.Index(rules, rule)
		if i < 0 {
			return "there is no such rule"
		}
		t.chains[chain] = slices.Delete(slices.Clone(rules), i, i+1)
	case "-X":
		if len(rules) > 0 {
			return "the chain is not empty"
		}
		delete(t.chains, chain) // check finds rules that lead to it
	default:
		return "unknown command"
	}
	return ""
}

// check returns a reason to refuse a table.
func (t *fakeTable) check() string {
	for _, rules := range t.chains {
		for _, r := range rules {
			to := target(r)
			if _, there := t.chains[to]; !there && strings.HasPrefix(to, "KUBE-") {
				return "a rule leads to " + to + ", which is not there"
			}
		}
	}
	return ""
}

// target is the target of a rule.
func target(rule string) string {
	at := max(strings.LastIndex(rule, "-j "), strings.LastIndex(rule, "-g "))
	if at < 0 {
		return ""
	}
	to, _, _ := strings.Cut(rule[at+len("-j "):], " ")
	return to
}
