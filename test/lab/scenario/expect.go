//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// expectation is the outcome that flows must have.
type expectation struct {
	flows
	kind    lab.Kind
	by      []string // "pod1" or "pod1:8080"; none for anybody
	source  []string // any of these may be seen; none for anybody
	hairpin []string
	evenly  bool
	inTurn  bool
	sticky  bool
	shares  map[string]int // of those in by, 1 if it is not there
	// together means sticky to one host whatever the target.
	together bool
}

// stickyFlow identifies a sticky flow of a line.
type stickyFlow struct {
	line *expectation
	flow lab.Flow
}

func parseExpect(p *parser, text string) (action, error) {
	f, words, err := p.parseFlows(text, lab.TCP, lab.UDP, lab.SCTP)
	if err != nil {
		return nil, err
	}
	e := &expectation{flows: f}
	for len(words) > 0 {
		if words, err = e.take(words); err != nil {
			return nil, err
		}
	}
	switch {
	case e.kind == "":
		return nil, errors.New("no verdict")
	case e.kind != lab.Answered && (e.by != nil || e.source != nil || e.hairpin != nil || e.balanced() || e.sticky):
		return nil, fmt.Errorf("no endpoint can be seen when %s", e.kind)
	case (e.balanced() || e.sticky) && len(e.by) < 2:
		return nil, errors.New("evenly, turns and sticky need several hosts after by")
	case e.inTurn && len(e.from) > 1:
		return nil, errors.New("turns need a single host: others at the same frontend take turns too")
	case len(e.shares) > 0 && !e.balanced():
		return nil, errors.New("shares need evenly or turns")
	}
	return e, nil
}

// balanced reports whether the line says how often each host answers.
func (e *expectation) balanced() bool { return e.evenly || e.inTurn }

// take reads one clause and returns the words that follow.
func (e *expectation) take(words []string) ([]string, error) {
	word, rest := words[0], words[1:]
	switch word {
	case "evenly":
		e.evenly = true
		return rest, nil
	case "turns":
		e.inTurn = true
		return rest, nil
	case "sticky", "together":
		e.sticky, e.together = true, word == "together"
		return rest, nil
	case "answered", "refused", "dropped", "passed":
		e.kind = lab.Kind(word)
		return rest, nil
	}
	clause, ok := map[string]*[]string{"by": &e.by, "source": &e.source, "hairpin": &e.hairpin}[word]
	switch {
	case !ok:
		return nil, fmt.Errorf("unknown clause %q", word)
	case len(rest) == 0:
		return nil, fmt.Errorf("a host must follow %q", word)
	}
	*clause = splitList(rest[0])
	if err := e.takeShares(*clause); err != nil {
		return nil, err
	}
	for _, name := range *clause {
		host, _, _ := strings.Cut(strings.TrimSuffix(name, spareSuffix), ":")
		if !knownHost(host) && host != "self" {
			return nil, fmt.Errorf("the lab has no host %q", host)
		}
	}
	return rest[1:], nil
}

// takeShares takes shares off names, as in pod1*3.
func (e *expectation) takeShares(names []string) error {
	for i, text := range names {
		name, share, ok := strings.Cut(text, "*")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(share)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a share", share)
		}
		if e.shares == nil {
			e.shares = map[string]int{}
		}
		names[i], e.shares[name] = name, n
	}
	return nil
}

// share returns how often a host answers in so many tries.
func (e *expectation) share(name string, tries int) float64 {
	return float64(tries*max(1, e.shares[name])) / float64(e.allShares())
}

func (e *expectation) allShares() (sum int) {
	for _, name := range e.by {
		sum += max(1, e.shares[name])
	}
	return sum
}

// tries is how many connections show what there is to see. A host that shares with k others
// escapes notice in 20k+10 tries about once in a thousand million times, so that even the last
// of many repeated checks cannot pass by chance; with 12k+6 it is once in a hundred thousand, and
// a check that failed by chance is repeated. So it is with shares that deviate further than
// deviations allows. Few tries do if a check may be repeated more often.
func (e *expectation) tries(few bool) int {
	switch {
	case e.kind != lab.Answered:
		return 1
	case e.evenly && few:
		return 40 * len(e.by)
	case e.evenly:
		return testkit.Extent(100, 100, 300) * len(e.by)
	case e.inTurn && few:
		return 2 * e.allShares()
	case e.inTurn:
		return 10 * e.allShares()
	case few:
		return 6 * max(len(e.by), 1)
	case e.sticky:
		return testkit.Extent(12, 12, 30)
	}
	n := testkit.Extent(4, 4, 10)
	return 2*n*max(len(e.by), 1) + n
}

// deviations is how many standard deviations from its fair share a host may be.
func deviations() float64 { return testkit.Extent(4.5, 4.5, 6.0) }

// run checks the expectation until it holds or time is up.
func (e *expectation) run(ctx context.Context, r *runner) error {
	r.remember(e)
	return r.eventually(ctx, func() error {
		clear(r.sticking)
		err := e.check(ctx, r)
		if err == nil {
			maps.Copy(r.stuck, r.sticking)
		}
		return err
	})
}

// check tries every flow of the line and reports all that went wrong.
func (e *expectation) check(ctx context.Context, r *runner) error {
	single, err := r.expand(e.flows)
	if err != nil {
		return err
	}
	for i := range single {
		if e.kind == lab.Dropped || e.kind == lab.Passed {
			single[i].Timeout = lab.ShortTimeout
		}
	}
	if e.sticky { // the first connection decides for those that follow
		for i, o := range r.lab.Probe(ctx, single) {
			if err := e.checkOne(r, single[i], o); err != nil {
				return err
			}
		}
	}
	// All flows in turn, so that one cannot hide what it does to another, and in another
	// order each time: with round robin, two of them at a frontend with two endpoints
	// would always get the same one.
	tries := e.tries(r.Sample > 1)
	order := make([]int, 0, tries*len(single))
	var probes []lab.Flow
	for range tries {
		for _, i := range rand.Perm(len(single)) {
			order, probes = append(order, i), append(probes, single[i])
		}
	}
	its := make([][]lab.Outcome, len(single))
	for n, o := range r.lab.Probe(ctx, probes) {
		its[order[n]] = append(its[order[n]], o)
	}
	var errs []error
	for i, f := range single {
		errs = append(errs, e.checkFlow(r, f, its[i]))
	}
	return errors.Join(errs...)
}

// checkFlow looks at all tries of one flow.
func (e *expectation) checkFlow(r *runner, f lab.Flow, outcomes []lab.Outcome) error {
	counts := map[string]int{}
	for _, o := range outcomes {
		if err := e.checkOne(r, f, o); err != nil {
			return err
		}
		if o.Kind == lab.Answered {
			counts[e.nameOf(o)]++
		}
	}
	if len(e.by) == 0 {
		return nil
	}
	if e.sticky {
		return e.checkSticky(r, f, counts)
	}
	for _, name := range e.by {
		if counts[name] == 0 {
			return fmt.Errorf("%v: never answered by %s but by %v", f, name, counts)
		}
		fair, allowed := e.share(name, len(outcomes)), 0.5
		if e.evenly {
			allowed = deviations() * math.Sqrt(fair*(1-fair/float64(len(outcomes))))
		}
		if e.balanced() && math.Abs(float64(counts[name])-fair) > allowed {
			return fmt.Errorf("%v: not evenly answered, or not in turn: want %.0f of %d by %s, not %v", f, fair, len(outcomes), name, counts)
		}
	}
	return nil
}

// checkSticky wants one host for all connections of a flow, and the same when
// the line is checked again. Flows that stick together have the same one.
func (e *expectation) checkSticky(r *runner, f lab.Flow, counts map[string]int) error {
	if len(counts) > 1 {
		return fmt.Errorf("%v: not sticky: answered by %v", f, counts)
	}
	client := stickyFlow{e, f}
	if e.together {
		client.flow.To = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		if f.To.Addr().Is6() {
			client.flow.To = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
		}
	}
	for name := range counts {
		for _, known := range []map[stickyFlow]string{r.stuck, r.sticking} {
			if before, ok := known[client]; ok && name != before {
				return fmt.Errorf("%v: not sticky: answered by %s, and before by %s", f, name, before)
			}
		}
		r.sticking[client] = name
	}
	return nil
}

// checkOne looks at one try.
func (e *expectation) checkOne(r *runner, f lab.Flow, o lab.Outcome) error {
	if o.Kind != e.kind {
		return fmt.Errorf("%v: %v", f, o)
	}
	if o.Kind != lab.Answered {
		return nil
	}
	if len(e.by) > 0 && !slices.Contains(e.by, e.nameOf(o)) {
		return fmt.Errorf("%v: %v", f, o)
	}
	want := e.source
	if e.hairpin != nil && o.By == f.From {
		want = e.hairpin
	}
	if want == nil {
		return nil
	}
	seen := r.sourceOf(o)
	self := strings.TrimSuffix(seen, spareSuffix) == f.From
	if slices.Contains(want, seen) || self && slices.Contains(want, "self") {
		return nil
	}
	return fmt.Errorf("%v: %v, which is not %s", f, o, strings.Join(want, " or "))
}

// sourceOf names the host that the endpoint saw, and distinguishes a spare address from
// its first one.
func (r *runner) sourceOf(o lab.Outcome) string {
	owner := r.lab.Owner(o.Source.Addr())
	switch {
	case owner == nil:
		return "nobody"
	case slices.Contains(owner.Spare, o.Source.Addr()):
		return owner.Name + spareSuffix
	}
	return owner.Name
}

// nameOf names the host that answered as the line does.
func (e *expectation) nameOf(o lab.Outcome) string { return nameAmong(e.by, o.Answer) }

// nameAmong names the host that answered as one of the names does, with or
// without port.
func nameAmong(names []string, a lab.Answer) string {
	full := a.By + ":" + strconv.Itoa(int(a.Port))
	if slices.Contains(names, full) {
		return full
	}
	return a.By
}
