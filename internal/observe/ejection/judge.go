package ejection

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

const (
	// firstPause and maxPause are for how long an endpoint is left out: longer each time.
	firstPause = 5 * time.Second
	maxPause   = time.Minute
	// trialTime is how long an endpoint has to answer the first client that tries it again. It is short: all
	// who come meanwhile have to repeat their packets if it does not.
	trialTime = 200 * time.Millisecond
	// resend is after how long clients repeat the first packet of a connection, and most how often they do
	// so in maxHistory: after 1, 2, 3, 4, 5, 7 and 11 seconds at the most.
	resend = time.Second
	most   = 7
	// One client may be kept out by a policy: others have so long to be answered. If they are served less
	// often, that cannot be told from an endpoint that serves nobody.
	oneClientSilence = 1500 * time.Millisecond
	// Clients who failed while others were answered fail for a reason of their own, unless nobody is
	// answered for so long.
	barredSilence = 5 * time.Second
	// maxHistory is for how long counts are remembered: longer than witnesses remember answers.
	maxHistory = 12 * time.Second
	// patience is how long an endpoint has to answer before it is left out: first a client who waits for it, and
	// then the node. One that is left out has probeTimeout.
	patience     = 1500 * time.Millisecond
	probeTimeout = time.Second
	// relapse is for how long an endpoint that answered again is remembered.
	relapse = 2 * maxPause
)

// phase is what becomes of an endpoint.
type phase uint8

const (
	trusted   phase = iota // it gets connections
	suspected              // it gets connections, and the node itself connects to it
	out                    // it gets none
	asked                  // it gets none, and the node itself connects to it
	onTrial                // it gets some again
)

// record is what is remembered of an endpoint.
type record struct {
	phase    phase
	ejection model.Ejection
	pause    time.Duration
	since    time.Time // when the phase began
	tried    time.Time // when a client first tried it in a trial; zero before
	told     bool      // that it is left out, since it last answered
	answered time.Time // when it last answered the node
	// unanswered says that the node got no answer, after which clients have to try, and spared that they did
	// not after the last pause.
	unanswered, spared bool
}

// Outcome is what a probe of the node found.
type Outcome uint8

// The outcomes.
const (
	Silent Outcome = iota
	Refused
	Answered
)

// probe is an endpoint that the node connects to, and how long it waits.
type probe struct {
	dataplane.Target
	timeout time.Duration
	// suspect says that the endpoint still gets connections.
	suspect bool
}

// judge decides which endpoints are left out. It knows no clock and asks nobody.
type judge struct {
	records map[dataplane.Target]*record
	counts  map[source][]count // of the failures that there are, the oldest first
	looked  time.Time          // when the last look was
}

// source is where failures come from.
type source struct {
	dataplane.Target
	client  netip.Addr
	refused bool
}

// count is how many packets of a Failure there were at a time, and when the last of them was.
type count struct {
	packets  uint64
	at, last time.Time
}

func newJudge() *judge {
	return &judge{records: map[dataplane.Target]*record{}, counts: map[source][]count{}}
}

// untold returns the ejection of an endpoint if it was not asked for since the endpoint last answered,
// nil otherwise.
func (j *judge) untold(at dataplane.Target) *model.Ejection {
	r := j.records[at]
	if r == nil || r.phase < out || r.told {
		return nil
	}
	r.told = true
	one := r.ejection
	return &one
}

// interesting returns the endpoints of which it matters when they last answered.
func (j *judge) interesting(failures []dataplane.Failure) (out []dataplane.Target) {
	for _, f := range failures {
		out = append(out, f.Target)
	}
	for at, r := range j.records {
		if r.phase == onTrial {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, dataplane.Target.Compare)
	return slices.Compact(out)
}

// look takes over what was noticed, and returns the endpoints that the node has to probe.
func (j *judge) look(now time.Time, failures []dataplane.Failure, seen map[dataplane.Target]dataplane.Seen) (probes []probe) {
	cases := j.cases(now, failures, seen)
	for at, c := range cases {
		if !c.suspicious(now) {
			continue
		}
		r := j.records[at]
		if r == nil {
			r = &record{since: now}
			j.records[at] = r
		}
		switch {
		case r.phase == trusted && at.Protocol == model.TCP:
			r.phase, r.since, r.unanswered = suspected, now, false
			probes = append(probes, probe{at, max(patience-c.waited, 0), true})
		case r.phase == trusted, r.phase == suspected && r.unanswered && c.convicts(now):
			j.eject(r, at, c, now)
		}
	}
	return append(probes, j.advance(now, cases, seen)...)
}

// advance ends what is over, and returns the endpoints that the node has to probe.
func (j *judge) advance(now time.Time, cases map[dataplane.Target]*indictment, seen map[dataplane.Target]dataplane.Seen) (probes []probe) {
	for at, r := range j.records {
		switch {
		case r.phase == out && !now.Before(r.ejection.Until):
			r.phase, r.since, r.unanswered = asked, now, false
			probes = append(probes, probe{at, probeTimeout, false})
		case r.phase == asked && r.unanswered: // from now on: the node's own attempt is none of a client
			r.phase, r.since, r.tried = onTrial, now, time.Time{}
		case r.phase == onTrial && seen[at].Answered.After(r.since):
			r.phase, r.since, r.told = trusted, now, false
		case r.phase == onTrial:
			j.try(r, cases[at], seen[at].Tried, now)
		case r.phase == suspected && r.unanswered && !cases[at].suspicious(now): // a client was answered
			r.phase, r.since = trusted, now
		case r.phase == trusted && now.Sub(r.since) > relapse:
			delete(j.records, at)
		}
	}
	slices.SortFunc(probes, func(a, b probe) int { return a.Compare(b.Target) })
	return probes
}

// answered returns when an endpoint last answered a client or the node.
func (j *judge) answered(at dataplane.Target, seen map[dataplane.Target]dataplane.Seen) time.Time {
	if r := j.records[at]; r != nil {
		return latest(seen[at].Answered, r.answered)
	}
	return seen[at].Answered
}

// try ends a trial in which a client got no answer for too long, or was refused. If none tries, it goes on.
// Datagrams need no answer: it is enough that none is refused.
func (j *judge) try(r *record, c *indictment, tried, now time.Time) {
	if r.tried.IsZero() && tried.After(r.since) {
		r.tried = tried
	}
	late := !r.tried.IsZero() && now.Sub(r.tried) >= trialTime
	switch {
	case c != nil && c.last.After(r.since), late && r.ejection.Protocol != model.UDP:
		j.extend(r, now)
	case late:
		r.phase, r.since, r.told = trusted, now, false
	}
}

// indictment is what speaks against an endpoint since it last answered.
type indictment struct {
	clients           int
	most              uint64 // connections of one client
	attempts, refused uint64
	// since and last are when the first and the last of them began, as far as is known.
	since, last time.Time
	waited      time.Duration // by a client, for each of them
}

// cases counts what happened since endpoints last answered: whoever began to connect before proves
// nothing. A packet is repeated a second after the connection began, and after each further second
// at most once: those of less than a second are of different connections.
func (j *judge) cases(now time.Time, failures []dataplane.Failure, seen map[dataplane.Target]dataplane.Seen) map[dataplane.Target]*indictment {
	cases := map[dataplane.Target]*indictment{}
	counts := make(map[source][]count, len(failures))
	for _, f := range failures {
		from := source{f.Target, f.Client, f.Refused}
		answered := j.answered(f.Target, seen)
		history := j.history(from, f, now)
		counts[from] = history
		began := f.At.Add(-f.Waited)
		barred := packetsAt(history, answered) > 0 && now.Sub(answered) < barredSilence
		if barred || !began.After(answered) {
			continue
		}
		c := cases[f.Target]
		since := firstAfter(history, answered.Add(f.Waited), f.At).Add(-f.Waited)
		if c == nil {
			c = &indictment{since: since, waited: f.Waited}
			cases[f.Target] = c
		}
		connections := connections(history, f, answered.Add(f.Waited), now)
		c.clients++
		c.most = max(c.most, connections)
		c.attempts += connections
		if f.Refused {
			c.refused += connections
		}
		c.last, c.waited = latest(c.last, began), max(c.waited, f.Waited)
		if since.Before(c.since) {
			c.since = since
		}
	}
	j.counts, j.looked = counts, now
	return cases
}

// connections returns how many connections of a client failed at the least, of those that began after a time.
func connections(history []count, f dataplane.Failure, began, now time.Time) uint64 {
	all := f.Packets - packetsAt(history, began)
	if !f.Refused {
		lately := f.Packets - packetsAt(history, latest(began, now.Add(-resend+period/2)))
		all = max(lately, (all+most-1)/most)
	}
	return max(all, 1)
}

// history returns the counts of a Failure with the current one. Of one that was there before the
// first look it is not known when its packets came.
func (j *judge) history(from source, f dataplane.Failure, now time.Time) []count {
	before, known := j.counts[from]
	switch last := len(before) - 1; {
	case !known && j.looked.IsZero():
		return []count{{packets: f.Packets}}
	case !known || before[last].packets > f.Packets: // a new one
		return []count{{at: j.looked}, {f.Packets, now, f.At}}
	case before[last].packets == f.Packets:
		return before
	}
	// What is older than all answers that are known of is not needed.
	for len(before) > 1 && now.Sub(before[1].at) > maxHistory {
		before = before[1:]
	}
	return append(before, count{f.Packets, now, f.At})
}

// firstAfter returns when the first packet after a time was, as far as it is known: at the latest the last.
func firstAfter(history []count, began, last time.Time) time.Time {
	for _, c := range history {
		if c.last.After(began) {
			return c.last
		}
	}
	return last
}

// packetsAt returns how many packets there were at a time.
func packetsAt(history []count, at time.Time) (packets uint64) {
	for _, c := range history {
		if c.at.After(at) {
			break
		}
		packets = c.packets
	}
	return packets
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// suspicious reports whether connections of two clients failed, or three of one. That one has failed for so
// long that the node finds what it can before others have had their time.
func (c *indictment) suspicious(now time.Time) bool {
	return c != nil && (c.clients > 1 || c.most > 2 && now.Sub(c.since) >= oneClientSilence-period)
}

// convicts reports whether it shows that an endpoint answers nobody, given that it does not answer the node.
func (c *indictment) convicts(now time.Time) bool {
	return c.clients > 1 || c.most > 2 && now.Sub(c.since) >= oneClientSilence
}

// eject leaves out an endpoint that failed.
func (j *judge) eject(r *record, at dataplane.Target, c *indictment, now time.Time) {
	r.ejection = model.Ejection{
		Endpoint: at.AddrPort, Protocol: at.Protocol,
		Refusing: 2*c.refused > c.attempts, Attempts: int(c.attempts), Since: c.since,
	}
	j.extend(r, now)
}

// extend leaves out an endpoint for longer than the last time.
func (j *judge) extend(r *record, now time.Time) {
	r.pause = min(max(2*r.pause, firstPause), maxPause)
	r.phase, r.since = out, now
	r.ejection.Until = now.Add(r.pause)
}

// probed takes over what the node found when it connected to an endpoint itself. An answer is one, whoever
// is refused. Anything else may be a policy about the node, and acquits nobody: clients have to try, but only
// every second time, because it is likely that they get no answer either. Silence over UDP says nothing.
func (j *judge) probed(at dataplane.Target, found Outcome, now time.Time) {
	r := j.records[at]
	switch {
	case r == nil || r.phase != suspected && r.phase != asked:
	case found == Answered:
		r.phase, r.since, r.answered, r.told, r.spared = trusted, now, now, false, false
	case r.phase == asked && !r.spared && (found == Refused || at.Protocol != model.UDP):
		r.spared = true
		j.extend(r, now)
	default:
		r.unanswered, r.spared = true, false
	}
}

// trials returns the endpoints that were left out, and that clients may try again.
func (j *judge) trials() map[dataplane.Target]struct{} {
	all := map[dataplane.Target]struct{}{}
	for at, r := range j.records {
		if r.phase == onTrial {
			all[at] = struct{}{}
		}
	}
	return all
}

// keep forgets all endpoints but these: others are gone, or nobody asks for them any more.
func (j *judge) keep(known func(dataplane.Target) bool) {
	for at := range j.records {
		if !known(at) {
			delete(j.records, at)
		}
	}
}

// ejected returns those that are left out or on trial now, sorted.
func (j *judge) ejected() (list []model.Ejection) {
	for _, r := range j.records {
		if r.phase >= out {
			e := r.ejection
			e.OnTrial = r.phase == onTrial
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b model.Ejection) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.Protocol, b.Protocol))
	})
	return list
}
