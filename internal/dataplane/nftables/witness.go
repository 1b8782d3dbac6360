//go:build linux

package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// witnessTableOf returns the name of a table of its own, which exists while endpoints are watched: it
// only looks at packets, and nothing of it is in the way of those that nobody watches.
func witnessTableOf(instance string) string { return sideTableOf("watch", instance) }

// The sets of the table.
const (
	watched  = "watched"  // endpoints
	onTrial  = "on-trial" // those of them that are on trial
	answered = "answered" // those that accepted a connection
	tried    = "tried"    // those on trial that a client began to connect to
	silent   = "silent"   // and clients that repeated the first packet of one
	refused  = "refused"  // and clients that got a reset for it
)

// trials is the chain for packets that open a connection.
const trials = "trials"

const (
	// seenSeconds and failureSeconds are how long these are remembered.
	seenSeconds    = 10
	failureSeconds = 5
	// firstRepeat is after how long the first packet of a connection is repeated for the first time.
	firstRepeat = time.Second
	// maxFailures bounds how many pairs of endpoint and client are remembered, and so what is read.
	maxFailures = 1 << 12
	maxWatched  = 1 << 16
)

// witness keeps one such table for each family.
type witness struct {
	conn   *nft.Conn
	tables map[model.Family]*witnessed
}

func newWitness(name string) witness {
	w := witness{tables: map[model.Family]*witnessed{}}
	for _, f := range model.Families {
		w.tables[f] = newWitnessed(f, name)
	}
	return w
}

// witnessed mirrors a table.
type witnessed struct {
	*layout
	nft.Table
	known, exists bool
	rules         []ruleID // that it has, of each chain in their order
	trying        bool     // it has the rule for endpoints on trial
	rosters       [2]roster
}

// ruleID is what tells a rule from others.
type ruleID struct {
	chain string
	tag   uint64
}

func identify(rules []nft.Rule) []ruleID {
	ids := make([]ruleID, len(rules))
	for i, r := range rules {
		ids[i] = ruleID{r.Chain, r.Tag}
	}
	slices.SortStableFunc(ids, ruleID.compare)
	return ids
}

func (r ruleID) compare(o ruleID) int { return cmp.Compare(r.chain, o.chain) }

// roster mirrors a set of endpoints.
type roster struct {
	*nft.Members[dataplane.Target]
	held map[dataplane.Target]struct{}
}

var watchedTargets = nft.MemberType[dataplane.Target]{Key: targetKey, Decode: decodeTarget, Compare: dataplane.Target.Compare}

func targetKey(a *nft.Arena, t dataplane.Target) []byte {
	at := len(*a)
	a.Addr(t.Addr())
	a.Protocol(byte(t.Protocol))
	a.Port(t.Port())
	return a.Cut(at)
}

func decodeTarget(d *nft.Decoder) (t dataplane.Target) {
	ip := d.Addr()
	t.Protocol = model.Protocol(d.Protocol())
	t.AddrPort = netip.AddrPortFrom(ip, d.Port())
	return t
}

func newWitnessed(f model.Family, name string) *witnessed {
	l := layouts[f]
	w := &witnessed{layout: l, Table: nft.Table{Family: l.nf, Name: name, Comment: tableComment}}
	w.reset()
	return w
}

func (t *witnessed) reset() {
	t.exists, t.rules, t.trying = false, nil, false
	for i, set := range []string{watched, onTrial} {
		t.rosters[i] = roster{nft.NewMembers(t.Table, set, watchedTargets, 0), map[dataplane.Target]struct{}{}}
	}
}

// hold makes these the endpoints of the set.
func (r *roster) hold(wanted map[dataplane.Target]struct{}) {
	for at := range r.held {
		if _, keep := wanted[at]; !keep {
			r.Release(at)
			delete(r.held, at)
		}
	}
	for at := range wanted {
		if _, held := r.held[at]; !held {
			r.Hold(at)
			r.held[at] = struct{}{}
		}
	}
}

// Watch implements dataplane.Witness. SCTP is not watched, and no more than the sets can hold.
func (w *witness) Watch(ctx context.Context, targets map[dataplane.Target]dataplane.OnTrial) error {
	var errs []error
	var tooMany error
	wanted := map[model.Family]*[2]map[dataplane.Target]struct{}{}
	for f := range w.tables {
		wanted[f] = &[2]map[dataplane.Target]struct{}{{}, {}}
	}
	for _, at := range slices.SortedFunc(maps.Keys(targets), dataplane.Target.Compare) {
		of := wanted[model.FamilyOf(at.Addr())]
		switch {
		case at.Protocol == model.SCTP:
		case len(of[0]) == maxWatched:
			tooMany = errManyWatched
		default:
			of[0][at] = struct{}{}
			if targets[at] {
				of[1][at] = struct{}{}
			}
		}
	}
	for f, t := range w.tables {
		errs = append(errs, t.follow(ctx, w.conn, wanted[f]))
	}
	return cmp.Or(errors.Join(errs...), tooMany)
}

var errManyWatched = fmt.Errorf("%w: there are more than %d of a family", dataplane.ErrTooManyWatched, maxWatched)

// follow makes the table watch these endpoints, and those that are on trial.
func (t *witnessed) follow(ctx context.Context, conn *nft.Conn, wanted *[2]map[dataplane.Target]struct{}) error {
	if t.exists && t.known {
		intact, err := t.intact(ctx, conn)
		if err != nil {
			return err
		}
		t.known = intact
	}
	if len(wanted[0]) == 0 && t.exists || !t.known {
		// What an earlier process left counts for nothing, nor what another program has changed.
		if _, err := removeTables(ctx, conn, []string{t.Name}, t.Family); err != nil {
			return err
		}
		t.known = true
		t.reset()
	}
	for i := range t.rosters {
		t.rosters[i].hold(wanted[i])
		if err := t.write(ctx, conn, &t.rosters[i]); err != nil {
			t.known = false // and made anew
			return err
		}
	}
	err := t.try(ctx, conn)
	t.known = err == nil
	return err
}

// try has the table notice who connects to endpoints on trial, which few packets need, as long as there are some.
func (t *witnessed) try(ctx context.Context, conn *nft.Conn) error {
	some := len(t.rosters[1].held) > 0
	if some == t.trying || !t.exists {
		return nil
	}
	b := &nft.Batch{}
	rule := nft.Rule{Chain: trials, Exprs: anyPacket.In(onTrial, t.endpoint()).RecordFirst(tried, t.endpoint(), seenSeconds)}
	rule.Tag = rule.Exprs.Tag()
	ids := slices.DeleteFunc(slices.Clone(t.rules), func(r ruleID) bool { return r.chain == trials })
	if b.FlushChain(t.Table, trials); some {
		b.AddRule(t.Table, rule)
		ids = append(ids, identify([]nft.Rule{rule})...)
		slices.SortStableFunc(ids, ruleID.compare)
	}
	if err := conn.Commit(ctx, b); err != nil {
		return err
	}
	t.rules, t.trying = ids, some
	return nil
}

// looked is how many endpoints of a set are looked up to see whether they are in it.
const looked = 1 << 8

// intact reports whether the rules are those that were written, and endpoints of each set in it, all of them if
// they are few. Where it cannot be seen they are: what is made anew has seen nothing.
func (t *witnessed) intact(ctx context.Context, conn *nft.Conn) (bool, error) {
	rules, err := conn.Rules(ctx, t.Table)
	if err == nil && !slices.Equal(identify(rules), t.rules) {
		return false, nil
	}
	missing := false
	for i, set := range []string{watched, onTrial} {
		if err != nil {
			break
		}
		var keys []nft.Element
		for at := range t.rosters[i].held { // in another order each time
			if keys = append(keys, nft.Element{Key: targetKey(&nft.Arena{}, at)}); len(keys) == looked {
				break
			}
		}
		err = conn.Lookup(ctx, t.Table, set, keys, func(_ int, e *nft.Element) error {
			missing = missing || e == nil
			return nil
		})
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err == nil, errors.Is(err, nft.ErrInterrupted):
		return !missing, nil
	}
	return false, err
}

// write writes a set of endpoints, and the table if there is none.
func (t *witnessed) write(ctx context.Context, conn *nft.Conn, r *roster) error {
	const room = 1 << 10
	for r.Missing(1) > 0 || r.Surplus(1) > 0 {
		b, rules := &nft.Batch{}, t.rules
		if !t.exists {
			rules = t.create(b)
		}
		r.Add(b, room)
		r.Remove(b, room)
		if err := conn.Commit(ctx, b); err != nil {
			return err
		}
		t.exists, t.rules = true, rules
		r.Added()
		r.Removed()
	}
	return nil
}

// create writes the table, without endpoints, and returns its rules.
func (t *witnessed) create(b *nft.Batch) []ruleID {
	b.AddTable(t.Table)
	plain := func(parts ...nft.Value) nft.Type { return nft.Type{Parts: parts} }
	one, pairs := plain(t.dest, nft.Protocol, nft.DestPort), plain(t.dest, nft.Protocol, nft.DestPort, t.source)
	for _, s := range []*nft.Set{
		{Name: watched, Key: one},
		{Name: onTrial, Key: one},
		// Endpoints that are watched no longer are remembered for a while.
		{Name: answered, Key: one, Dynamic: true, Size: 2 * maxWatched},
		{Name: tried, Key: one, Dynamic: true, Size: 2 * maxWatched},
		{Name: silent, Key: pairs, Dynamic: true, Counter: true, Size: maxFailures},
		{Name: refused, Key: pairs, Dynamic: true, Counter: true, Size: maxFailures},
	} {
		b.AddSet(t.Table, s)
	}
	var rules []nft.Rule
	for _, c := range t.chains() {
		b.AddChain(t.Table, c.Chain)
		for _, e := range c.rules {
			rules = append(rules, nft.Rule{Chain: c.Name, Exprs: e, Tag: e.Tag()})
			b.AddRule(t.Table, rules[len(rules)-1])
		}
	}
	return identify(rules)
}

// witnessChain is a chain as it is at first.
type witnessChain struct {
	nft.Chain
	rules []nft.Exprs
}

// chains are those of the table. Answers need not be to connections to a Service: whoever reaches an endpoint, it is
// alive. Silence counts if it met a Service, or the node itself.
func (t *witnessed) chains() []witnessChain {
	const arriving, leaving, datagrams = "arriving", "leaving", "datagrams"
	base := func(name string, hook uint32, segments string, others ...nft.Exprs) []witnessChain {
		others = append(others,
			// A stream of datagrams is assured after two seconds.
			anyPacket.HasProtocol(unix.IPPROTO_UDP).HasStatus(nft.Assured, 0).Jump(datagrams),
			anyPacket.PortUnreachable(t.nf).InDirection(nft.Reply).In(watched, t.endpoint()).Record(refused, t.pair(), failureSeconds),
		)
		return []witnessChain{
			{nft.Chain{Name: name + "-others"}, others},
			{nft.Chain{Name: name, Type: "filter", Hook: hook}, []nft.Exprs{
				anyPacket.NotProtocol(unix.IPPROTO_TCP).Goto(name + "-others"),
				// Segments of established connections have neither flag. Nearly all packets get no further.
				anyPacket.HasAnyTCPFlag(nft.SYN | nft.RST).Goto(segments),
			}},
		}
	}
	// What the node sends to itself was seen when it went out: it would look repeated.
	fromOthers := func(e nft.Exprs) nft.Exprs { return e.NotFromInterface("lo") }
	return slices.Concat(
		[]witnessChain{
			{Chain: nft.Chain{Name: trials}},
			{nft.Chain{Name: datagrams}, []nft.Exprs{
				anyPacket.HasStatus(nft.Confirmed, 0).Jump(trials),
				anyPacket.InDirection(nft.Reply).RecordIn(watched, answered, t.endpoint(), seenSeconds),
			}},
		},
		// What the kernel's balancer leads to an endpoint is not translated before it leaves.
		t.segments(arriving, nft.DNATed, fromOthers),
		t.segments(leaving, 0, func(e nft.Exprs) nft.Exprs { return e }),
		base("prerouting", unix.NF_INET_PRE_ROUTING, arriving, anyPacket.FromInterface("lo", false).Return()),
		base("output", unix.NF_INET_LOCAL_OUT, leaving),
	)
}

// segments are the chains for those that open, accept or refuse a connection, which soon find their rule: each connection
// has some. A connection is confirmed by its first packet.
func (t *witnessed) segments(name string, met uint32, once func(nft.Exprs) nft.Exprs) []witnessChain {
	opening, refusal := name+"-opening", anyPacket.HasTCPFlags(nft.RST, nft.RST).InDirection(nft.Reply)
	repeated := anyPacket.HasStatus(met|nft.Confirmed|nft.SeenReply, met|nft.Confirmed)
	return []witnessChain{
		{nft.Chain{Name: opening}, []nft.Exprs{
			anyPacket.HasStatus(met|nft.Confirmed, met).Jump(trials),
			once(repeated).In(watched, t.endpoint()).Record(silent, t.pair(), failureSeconds),
		}},
		{nft.Chain{Name: name}, []nft.Exprs{
			anyPacket.HasTCPFlags(nft.FIN|nft.SYN|nft.RST|nft.ACK, nft.SYN).Goto(opening),
			// From a client it is no packet of a connection.
			anyPacket.HasTCPFlags(nft.SYN|nft.RST|nft.ACK, nft.SYN|nft.ACK).RecordIn(watched, answered, t.endpoint(), seenSeconds),
			once(refusal).HasStatus(nft.Assured, 0).In(watched, t.endpoint()).Record(refused, t.pair(), failureSeconds),
		}},
	}
}

// endpoint is that of a connection, and pair the endpoint and its client. What the tuples of a connection say is the
// same at every hook.
func (t *witnessed) endpoint() nft.Concat {
	return nft.Concat{nft.TupleSource(t.nf, nft.Reply), nft.TupleProtocol, nft.TupleSourcePort(nft.Reply)}
}

func (t *witnessed) pair() nft.Concat {
	return append(t.endpoint(), nft.TupleSource(t.nf, nft.Original))
}

// Failures implements dataplane.Witness. A dump that other transactions interrupt lacks some or has some twice.
func (w *witness) Failures(ctx context.Context) (all []dataplane.Failure, err error) {
	for _, t := range w.tables {
		if !t.exists {
			continue
		}
		for set, waited := range map[string]time.Duration{silent: firstRepeat, refused: 0} {
			now, known := time.Now(), map[string]struct{}{}
			err := w.conn.Elements(ctx, t.Table, set, func(e *nft.Element) error {
				d := t.decode(e.Key)
				at := decodeTarget(&d.Decoder)
				client := d.Addr()
				if _, twice := known[string(e.Key)]; d.Done() && !twice {
					known[string(e.Key)] = struct{}{}
					all = append(all, dataplane.Failure{
						Target: at, Client: client, Refused: set == refused, Packets: e.Packets,
						At: now.Add(e.Expires - failureSeconds*time.Second), Waited: waited,
					})
				}
				return nil
			})
			if err != nil && !errors.Is(err, nft.ErrInterrupted) {
				return nil, t.lost(err)
			}
		}
	}
	return all, nil
}

// Seen implements dataplane.Witness.
func (w *witness) Seen(ctx context.Context, targets []dataplane.Target) (map[dataplane.Target]dataplane.Seen, error) {
	seen := map[dataplane.Target]dataplane.Seen{}
	for f, t := range w.tables {
		var keys, trial []nft.Element
		var of, tryOf []dataplane.Target
		for _, at := range targets {
			if at.Protocol == model.SCTP || model.FamilyOf(at.Addr()) != f || !t.exists {
				continue
			}
			key := nft.Element{Key: targetKey(&nft.Arena{}, at)}
			keys, of = append(keys, key), append(of, at)
			if _, is := t.rosters[1].held[at]; is {
				trial, tryOf = append(trial, key), append(tryOf, at)
			}
		}
		err := t.when(ctx, w.conn, answered, keys, func(i int, when time.Time) { seen[of[i]] = dataplane.Seen{Answered: when} })
		if err == nil {
			err = t.when(ctx, w.conn, tried, trial, func(i int, when time.Time) {
				one := seen[tryOf[i]]
				one.Tried = when
				seen[tryOf[i]] = one
			})
		}
		if err != nil {
			return nil, t.lost(err)
		}
	}
	return seen, nil
}

// when calls each for the keys that a set has, with when they were recorded.
func (t *witnessed) when(ctx context.Context, conn *nft.Conn, set string, keys []nft.Element, each func(int, time.Time)) error {
	now := time.Now()
	return conn.Lookup(ctx, t.Table, set, keys, func(i int, e *nft.Element) error {
		if e != nil {
			each(i, now.Add(e.Expires-seenSeconds*time.Second))
		}
		return nil
	})
}

// lost has a table made anew that another program removed.
func (t *witnessed) lost(err error) error {
	if errors.Is(err, unix.ENOENT) {
		t.known = false
	}
	return err
}
