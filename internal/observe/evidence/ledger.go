package evidence

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const (
	// late is how long a first packet is without an answer before that is a failure: the
	// time after which clients send it again.
	late = time.Second
	// recent is how long failures count among attempts that succeed.
	recent = 10 * time.Second
	// stale is after how long without another attempt a failure is forgotten.
	stale = 10 * time.Minute
	// maxAttempts bounds what is remembered of single attempts, for all endpoints together.
	maxAttempts = 1 << 16
	// repeated is by how much longer an entry is kept if its client has sent its first packet again, and not only
	// by how the kernel rounds.
	repeated = 2 * time.Second
)

// To is an endpoint, and the kind of client that connects to it.
type To struct {
	netip.AddrPort
	Protocol model.Protocol
	From     plan.Client
}

// State is what attempts to connect to an endpoint showed.
type State uint8

// The states.
const (
	Fine   State = iota // no attempt failed, as far as is known
	Flaky               // some fail, and some do not
	Resets              // all are answered by a reset
	Silent              // none is answered
)

func (s State) String() string {
	return [...]string{"fine", "flaky", "resets", "silent"}[s]
}

// Failing reports whether no attempt succeeds.
func (s State) Failing() bool { return s == Resets || s == Silent }

// Report is what is known of an endpoint.
type Report struct {
	State State
	// Waiting counts attempts that have not been answered yet.
	Waiting int
	// Failed counts attempts since Since that were not answered, and Refused those of them
	// that were answered by a reset.
	Failed, Refused uint64
	Since           time.Time // of the first of them; zero if there are none
	LastFailure     time.Time
	// LastAnswer is when a connection was last answered since then, or since clients of another
	// kind failed; zero if none was.
	LastAnswer time.Time
}

// attempt identifies an entry of connection tracking.
type attempt struct {
	id     uint32
	client netip.AddrPort
}

// connection is an entry, as far as it matters here.
type connection struct {
	attempt
	replied bool
	until   time.Time // when the kernel forgets it, if there are no packets
}

type attempts map[attempt]struct{}

func (s attempts) has(a attempt) bool {
	_, ok := s[a]
	return ok
}

// add adds to a set that may be nil.
func (s *attempts) add(a attempt) {
	if *s == nil {
		*s = attempts{}
	}
	(*s)[a] = struct{}{}
}

// record is what is remembered of an endpoint.
type record struct {
	Report
	// waiting are attempts without an answer, and since when; counted those of them that
	// count as failures.
	waiting map[attempt]time.Time
	counted attempts
	// waited are those of the look before: the kernel may give up one while the table is read,
	// and its notice come afterwards.
	waited map[attempt]time.Time
	// known are connections with an answer at the last look, while the endpoint is in doubt:
	// another one shows that it answers. primed says that there was such a look.
	known  attempts
	primed bool

	// silence is for how long attempts of the proxy itself waited in vain since the last one
	// that was answered or counted, and tried when the last of them ended.
	silence time.Duration
	tried   time.Time

	// Of the look under way.
	unanswered    int
	seen, replied attempts // without an answer, and with one
}

// ledger keeps the records. It is not safe for concurrent use.
type ledger struct {
	records  map[To]*record
	attempts int // in waiting, of all records
	// inDoubt are the endpoints that clients of some kind failed to reach: answers to those
	// of other kinds are of interest, too.
	inDoubt map[To]struct{} // From is not set
	// before are attempts from before the first look, nil until then, which may have been given up: the kernel keeps
	// them for two minutes, and their clients may have been answered since. They count when they are repeated.
	// stay are those of them that the look under way has seen, and gone has those that were there at the last look but
	// one: the notice of their end may come afterwards.
	before, stay, gone map[attempt]time.Time
}

func newLedger() *ledger {
	return &ledger{records: map[To]*record{}, inDoubt: map[To]struct{}{}, stay: map[attempt]time.Time{}}
}

// Compare orders them by endpoint.
func (t To) Compare(o To) int {
	return cmp.Or(t.AddrPort.Compare(o.AddrPort), cmp.Compare(t.Protocol, o.Protocol), cmp.Compare(t.From, o.From))
}

// endpoint is the endpoint for clients of any kind.
func (t To) endpoint() To { return To{AddrPort: t.AddrPort, Protocol: t.Protocol} }

func (l *ledger) of(to To) *record {
	r := l.records[to]
	if r == nil {
		r = &record{}
		l.records[to] = r
	}
	return r
}

// connects reports whether an unanswered connection of a protocol tells anything.
func connects(p model.Protocol) bool { return p == model.TCP || p == model.SCTP }

// see adds a connection of the look under way. Those with an answer matter only to endpoints
// in doubt.
func (l *ledger) see(to To, c connection) {
	if !connects(to.Protocol) {
		return
	}
	if c.replied {
		if _, interesting := l.inDoubt[to.endpoint()]; interesting {
			l.of(to).replied.add(c.attempt)
		}
		return
	}
	if l.isOld(&c) {
		return
	}
	r := l.of(to)
	r.unanswered++
	if _, known := r.waiting[c.attempt]; known || l.attempts+len(r.seen) < maxAttempts {
		r.seen.add(c.attempt)
	}
}

// isOld reports whether an attempt is from before the first look, and was not repeated since.
func (l *ledger) isOld(c *connection) bool {
	until, old := l.before[c.attempt]
	if l.before == nil {
		until, old = c.until, len(l.stay) < maxAttempts
	}
	if old = old && c.until.Sub(until) < repeated; old {
		l.stay[c.attempt] = until
	}
	return old
}

// doubtful returns the addresses of endpoints of which it is to be known whether they answer.
func (l *ledger) doubtful() []netip.Addr {
	addrs := map[netip.Addr]struct{}{}
	for to := range l.inDoubt {
		addrs[to.Addr()] = struct{}{}
	}
	return slices.Collect(maps.Keys(addrs))
}

// look ends a look at the table.
func (l *ledger) look(now time.Time) {
	l.gone, l.before, l.stay = l.before, l.stay, map[attempt]time.Time{}
	l.attempts = 0
	clear(l.inDoubt)
	for to, r := range l.records {
		r.look(now)
		l.attempts += len(r.waiting)
		if r.Failed > 0 || len(r.waiting) > 0 || r.silence > 0 {
			l.inDoubt[to.endpoint()] = struct{}{}
		}
	}
	for to := range l.records {
		if _, keep := l.inDoubt[to.endpoint()]; !keep {
			delete(l.records, to)
		}
	}
}

// forgetLook drops what a look saw that did not come to its end.
func (l *ledger) forgetLook() {
	clear(l.stay)
	for _, r := range l.records {
		r.unanswered, r.seen, r.replied = 0, nil, nil
	}
}

func (r *record) look(now time.Time) {
	if r.Failed > 0 && now.Sub(r.LastFailure) > stale {
		r.Report = Report{}
	}
	if now.Sub(r.tried) > stale {
		r.silence = 0
	}
	r.Waiting = r.unanswered
	r.noticeAnswers(now)
	r.settle(now)
	r.unanswered, r.seen, r.replied = 0, nil, nil
	r.judge(now)
}

// noticeAnswers looks for connections that were answered since the last look: they waited
// then, or were not there.
func (r *record) noticeAnswers(now time.Time) {
	for a := range r.replied {
		_, waited := r.waiting[a]
		if waited || r.primed && !r.known.has(a) {
			r.LastAnswer = now
			break
		}
	}
	r.known, r.primed = r.replied, true
}

// settle counts the attempts that have been waiting for too long. What is no longer waiting
// was answered, or given up by the kernel.
func (r *record) settle(now time.Time) {
	waiting, counted := map[attempt]time.Time{}, attempts{}
	for a := range r.seen {
		since, known := r.waiting[a]
		if !known {
			since = now
		}
		waiting[a] = since
		switch {
		case r.counted.has(a):
			counted.add(a)
		case now.Sub(since) >= late:
			counted.add(a)
			r.fail(now, false)
		}
	}
	r.waited, r.waiting, r.counted = r.waiting, waiting, counted
}

func (r *record) fail(now time.Time, refused bool) {
	if r.Failed == 0 {
		r.Since, r.LastAnswer = now, time.Time{}
	}
	r.Failed++
	if refused {
		r.Refused++
	}
	r.LastFailure = now
}

// judge draws the conclusion.
func (r *record) judge(now time.Time) {
	switch {
	case r.Failed == 0:
		r.State = Fine
	case r.LastAnswer.IsZero() && r.Refused*2 > r.Failed:
		r.State = Resets
	case r.LastAnswer.IsZero():
		r.State = Silent
	case now.Sub(r.LastFailure) < recent:
		r.State = Flaky
	default:
		r.Report = Report{Waiting: r.Waiting, LastAnswer: r.LastAnswer}
	}
}

// ended adds an entry that the kernel deleted without a reply. If it was waiting at the last
// look it was given up after a long time, and has been counted; else it did not live as long as
// that, because a reset came back. It returns what is known now, nil if that is nothing new.
func (l *ledger) ended(to To, c connection, now time.Time) *Report {
	if !connects(to.Protocol) {
		return nil
	}
	_, old := l.before[c.attempt]
	if _, was := l.gone[c.attempt]; old || was {
		return nil // after a long time, too
	}
	r := l.of(to)
	_, waits := r.waiting[c.attempt]
	_, waited := r.waited[c.attempt]
	if waits || waited {
		delete(r.waiting, c.attempt)
		delete(r.counted, c.attempt)
		return nil
	}
	r.fail(now, true)
	l.inDoubt[to.endpoint()] = struct{}{}
	r.judge(now)
	return &r.Report
}

// try adds an attempt of the proxy itself. It waits for less than late before it tries another
// endpoint: what counts as a failure is that for so long nobody answered, in one attempt or
// several. It returns what is known now, nil if that is nothing new.
func (l *ledger) try(to To, a dataplane.Attempt, now time.Time) *Report {
	r := l.of(to)
	r.tried = now
	switch a.Outcome {
	case dataplane.Accepted:
		r.silence, r.LastAnswer = 0, now
	case dataplane.Refused:
		r.silence = 0
		r.fail(now, true)
	case dataplane.Unanswered:
		if r.silence += a.Took; r.silence >= late {
			r.silence = 0
			r.fail(now, false)
		}
	}
	l.inDoubt[to.endpoint()] = struct{}{}
	r.judge(now)
	return &r.Report
}
