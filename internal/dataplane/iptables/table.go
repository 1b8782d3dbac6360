package iptables

import (
	"cmp"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"sluice/internal/plan"
)

// table is what is known of one table in the kernel.
type table struct {
	Table
	// mirror are the prints of our chains.
	mirror map[string]print
	// forms are prints of listings by the print of what was written, where
	// iptables prints rules in another form than ours.
	forms map[print]print
	// surplus are chains to be removed, stuck those that could not be.
	surplus, stuck map[string]bool
	// missing are the hooks that have to be put in, after those in removing were
	// taken out.
	missing  []hook
	removing []string
	written  int // rules of the last round
}

func newTable(t Table) *table {
	return &table{Table: t, mirror: map[string]print{}, forms: map[print]print{}, surplus: map[string]bool{}, stuck: map[string]bool{}}
}

// take makes what was listed the mirror, and finds out which hooks are not in
// order.
func (t *table) take(l *listing) {
	clear(t.mirror)
	for name, p := range l.chains {
		if Owns(name) {
			t.mirror[name] = p
		}
	}
	t.missing, t.removing = hooksToMend(t.Name, l.builtin)
}

// hooksToMend compares the hooks of a table with the rules of its built-in
// chains. If those of one chain are not all there, once and in order, they are
// all put in anew. Upstream's are taken out.
func hooksToMend(table string, rules []string) (missing []hook, removing []string) {
	for _, r := range rules {
		if slices.Contains(upstreamHooks[table], r) {
			removing = append(removing, r)
		}
	}
	byChain := map[string][]hook{}
	for _, h := range hooksOf(table) {
		byChain[h.from] = append(byChain[h.from], h)
	}
	for _, from := range slices.Sorted(maps.Keys(byChain)) {
		var want []string
		for _, h := range byChain[from] {
			want = append(want, h.text())
		}
		var have []string
		for _, r := range rules {
			if slices.Contains(want, r) {
				have = append(have, r)
			}
		}
		if !slices.Equal(want, have) {
			removing = append(removing, have...)
			missing = append(missing, byChain[from]...)
		}
	}
	return missing, removing
}

// same tells whether a chain that was listed is what was written.
func (t *table) same(written, listed print) bool {
	return written == listed || t.forms[written] == listed && listed.rules == written.rules
}

// input is text for iptables-restore, with what is needed to make sense of its
// complaints.
type input struct {
	text  net.Buffers
	lines int
	// starts are the numbers of the lines at which pages begin.
	starts []pageStart
	pages  []*page
	// gone are chains that it removes.
	gone  []string
	rules int
	// missing are the hooks that it puts in, removing those that it takes out.
	missing  []hook
	removing []string
}

type pageStart struct {
	line int
	*page
}

func (in *input) line(parts ...string) {
	in.text = append(in.text, []byte(strings.Join(parts, "")+"\n"))
	in.lines++
}

// reader reads the text. There can be very much of it, which is not copied.
func (in *input) reader() io.Reader {
	text := slices.Clone(in.text)
	return &text
}

// empty tells whether nothing would be done.
func (in *input) empty() bool { return in.lines == 0 }

// ownersOf are the frontends that a line is there for.
func (in *input) ownersOf(line int) []plan.Key {
	i, found := slices.BinarySearchFunc(in.starts, line, func(s pageStart, l int) int { return cmp.Compare(s.line, l) })
	if !found {
		i--
	}
	if i < 0 || line-in.starts[i].line >= in.starts[i].rules {
		return nil
	}
	return in.starts[i].ownersOf(line - in.starts[i].line)
}

// write makes the input that brings the chains of out into the kernel, and the
// hooks, and removes chains if remove is set.
func (t *table) write(out *pages, remove bool) *input {
	in := &input{missing: t.missing, removing: t.removing}
	for _, p := range out.list {
		if have, there := t.mirror[p.chain]; !there || have != p.print() {
			in.pages = append(in.pages, p)
		}
	}
	if remove {
		in.gone = t.removable()
	}
	return in.compose(t.Name)
}

// ahead makes inputs that bring all but the last of those chains of out into the
// kernel that are not there, so many with each. Nothing leads to them yet, and
// they lead only to chains that are there or that went before.
func (t *table) ahead(out *pages, most int) []*input {
	var inputs []*input
	batches := slices.Collect(slices.Chunk(t.absent(out), most))
	for _, batch := range batches[:max(0, len(batches)-1)] {
		in := &input{pages: batch}
		inputs = append(inputs, in.compose(t.Name))
	}
	return inputs
}

// absent are the chains of out that are not in the kernel, each behind those that
// it leads to.
func (t *table) absent(out *pages) []*page {
	var list []*page
	seen := map[string]bool{}
	var visit func(p *page)
	visit = func(p *page) {
		if _, there := t.mirror[p.chain]; there || seen[p.chain] {
			return
		}
		seen[p.chain] = true
		for _, to := range p.leads {
			if next := out.byName[to]; next != nil {
				visit(next)
			}
		}
		list = append(list, p)
	}
	for _, p := range out.list {
		visit(p)
	}
	return list
}

// compose writes the text, if there is anything to do.
func (in *input) compose(table string) *input {
	if len(in.pages)+len(in.gone)+len(in.missing)+len(in.removing) == 0 {
		return in
	}
	in.line("*", table)
	// To name a chain makes it if need be, and empties it.
	for _, p := range in.pages {
		in.line(":", p.chain, " - [0:0]")
	}
	for _, name := range in.gone {
		in.line(":", name, " - [0:0]")
	}
	for _, r := range in.removing {
		in.line("-D ", r)
	}
	for _, h := range slices.Backward(in.missing) {
		in.line("-I ", h.text())
	}
	for _, p := range in.pages {
		in.starts = append(in.starts, pageStart{in.lines + 1, p})
		in.text = append(in.text, p.text)
		in.lines += p.rules
		in.rules += p.rules
	}
	for _, name := range in.gone {
		in.line("-X ", name)
	}
	in.line("COMMIT")
	return in
}

// removable are the surplus chains that are there.
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

// done takes over what an input did.
func (t *table) done(in *input) {
	for _, p := range in.pages {
		t.mirror[p.chain] = p.print()
	}
	for _, name := range in.gone {
		delete(t.mirror, name)
		delete(t.surplus, name)
	}
	if len(in.missing)+len(in.removing) > 0 {
		t.missing, t.removing = nil, nil
	}
	t.written += in.rules
}

// rules is how many rules of ours the table holds, hooks included.
func (t *table) rules() int {
	n := len(hooksOf(t.Name))
	for _, p := range t.mirror {
		n += p.rules
	}
	return n
}
