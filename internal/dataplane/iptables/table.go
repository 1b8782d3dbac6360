//go:build linux

package iptables

import (
	"maps"
	"slices"

	"sluice/internal/kernel/iptables"
)

// The tables. We have no chains in mangle, where upstream has a canary: every packet
// would pass the hooks of one more table.
const (
	nat    = iptables.NAT
	filter = iptables.Filter
	mangle = iptables.Mangle
)

// table mirrors a table in the kernel.
type table struct {
	iptables.Table
	// mirror are the fingerprints of our chains in the kernel.
	mirror map[string]iptables.Fingerprint
	// forms are fingerprints as listed by fingerprints as written, for rules that
	// iptables prints in another form than ours.
	forms map[iptables.Fingerprint]iptables.Fingerprint
	// surplus are chains to be removed, stuck those that iptables refused to remove.
	surplus, stuck map[string]bool
	// missing are the hooks to be inserted, after the rules in removing were deleted.
	missing  []hook
	removing []string
	written  int // rules written by the last commit
}

func newTable(t iptables.Table) *table {
	return &table{Table: t, mirror: map[string]iptables.Fingerprint{}, surplus: map[string]bool{}, stuck: map[string]bool{}}
}

// take makes a listing the mirror, and finds the hooks to be repaired.
func (t *table) take(l *iptables.Listing) {
	clear(t.mirror)
	for name, listed := range l.Chains {
		if Owns(name) {
			t.mirror[name] = listed
		}
	}
	t.missing, t.removing = hooksToMend(t.Name, l.Builtin)
}

func (t *table) matches(l *iptables.Listing) bool {
	ours := 0
	for name, listed := range l.Chains {
		if !Owns(name) {
			continue
		}
		ours++
		if written, there := t.mirror[name]; !there || !t.same(written, listed) {
			return false
		}
	}
	missing, _ := hooksToMend(t.Name, l.Builtin)
	return ours == len(t.mirror) && len(missing) == 0
}

func (t *table) same(written, listed iptables.Fingerprint) bool {
	return written == listed || t.forms[written] == listed && listed.Rules == written.Rules
}

// input makes the input that writes those chains of out that differ from the mirror,
// repairs hooks, and removes surplus chains if remove is set.
func (t *table) input(out chainTexts, remove bool) *iptables.Input {
	in := &iptables.Input{Table: t.Name, Delete: t.removing}
	for _, h := range t.missing {
		in.Insert = append(in.Insert, h.text())
	}
	for _, c := range out.sorted() {
		if have, there := t.mirror[c.Name]; !there || have != c.Fingerprint() {
			in.Chains = append(in.Chains, &c.Chain)
		}
	}
	if remove {
		in.Remove = t.removable()
	}
	return in
}

// newChains makes inputs that write all but the last of those chains of out that are
// not in the kernel, in batches. No rule in the kernel leads to them yet, and they
// lead only to chains that are in the kernel or in an earlier batch.
func (t *table) newChains(out chainTexts, batch int) []*iptables.Input {
	var inputs []*iptables.Input
	batches := slices.Collect(slices.Chunk(t.absent(out), batch))
	for _, chains := range batches[:max(0, len(batches)-1)] {
		inputs = append(inputs, &iptables.Input{Table: t.Name, Chains: chains})
	}
	return inputs
}

// absent are the chains of out that are not in the kernel, each after those that it
// leads to.
func (t *table) absent(out chainTexts) []*iptables.Chain {
	var list []*iptables.Chain
	seen := map[string]bool{}
	var visit func(c *chainText)
	visit = func(c *chainText) {
		if _, there := t.mirror[c.Name]; there || seen[c.Name] {
			return
		}
		seen[c.Name] = true
		for _, to := range c.jumps {
			if next := out[to]; next != nil {
				visit(next)
			}
		}
		list = append(list, &c.Chain)
	}
	for _, c := range out.sorted() {
		visit(c)
	}
	return list
}

// surplusOf finds the chains in the kernel that are not among all that are needed.
func (t *table) surplusOf(all chainTexts) {
	for name := range t.mirror {
		if all[name] == nil {
			t.surplus[name] = true
		}
	}
}

// need takes over which chains are needed, and which no longer.
func (t *table) need(out chainTexts) {
	for name, text := range out {
		if text == nil {
			t.surplus[name] = true
			continue
		}
		delete(t.surplus, name)
		delete(t.stuck, name)
	}
}

// removable are the surplus chains that are in the kernel.
func (t *table) removable() []string {
	var names []string
	for name := range t.surplus {
		if _, there := t.mirror[name]; there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// retryStuck has chains removed again that could not be: the rules that led to them
// may be gone.
func (t *table) retryStuck() {
	maps.Copy(t.surplus, t.stuck)
	clear(t.stuck)
}

// entries is how many entries an input adds to a legacy table: one for each rule,
// and two for each chain.
func (t *table) entries(in *iptables.Input) int {
	n := len(in.Insert) - len(in.Delete)
	for _, c := range in.Chains {
		have, there := t.mirror[c.Name]
		if n += c.Rules - have.Rules; !there {
			n += 2
		}
	}
	for _, name := range in.Remove {
		n -= t.mirror[name].Rules + 2
	}
	return n
}

// done updates the mirror after an input was written.
func (t *table) done(in *iptables.Input) {
	for _, c := range in.Chains {
		t.mirror[c.Name] = c.Fingerprint()
	}
	for _, name := range in.Remove {
		delete(t.mirror, name)
		delete(t.surplus, name)
	}
	if len(in.Insert)+len(in.Delete) > 0 {
		t.missing, t.removing = nil, nil
	}
	t.written += in.Rules()
}

// rules is how many rules of ours the table has, including hooks.
func (t *table) rules() int {
	n := len(hooksOf(t.Name))
	for _, c := range t.mirror {
		n += c.Rules
	}
	return n
}
