//go:build linux

package direct

import (
	"net/netip"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

const (
	// probePeriod is how often a node is probed that answers, and unprovenPeriod at least how
	// often one that does not.
	probePeriod    = time.Minute
	unprovenPeriod = time.Minute
	// answerTime is for how long the answer to a probe is awaited, and patience how many of them may be
	// missing in a row.
	answerTime = time.Second
	patience   = 3
)

// path is the way to another node in one family.
type path struct {
	addr   netip.Addr
	onLink bool
	routes uint64 // when that was found out, in numbers of neighbour.Table.Routes
	mac    dataplane.MAC

	since   time.Time // what came back before counts for nothing
	sent    time.Time // when the last probe was
	due     time.Time // when the next one is
	lost    time.Time // when the first of those was sent that were not answered in a row
	missed  int       // how many in a row were not answered
	awaited bool
	proof   dataplane.Proof
	asked   time.Time // when the kernel was last asked for its address on the link
	told    model.PathState
}

// proven reports whether packets are handed to the node.
func (p *path) proven(now time.Time) bool {
	return p.onLink && p.mac != (dataplane.MAC{}) && p.missed <= patience && !p.proof.Foreign.IsZero() &&
		now.Sub(p.proof.Foreign) < dataplane.ProofTimeout
}

// state is what is known of it, for people.
func (p *path) state(now time.Time) model.PathState {
	switch {
	case !p.onLink:
		return model.PathOffLink
	case p.mac == (dataplane.MAC{}):
		return model.PathNoMAC
	case p.proven(now):
		return model.PathProven
	case p.missed == 0 && p.proof == dataplane.Proof{}:
		return model.PathUnknown
	case !p.proof.Plain.Before(p.lost.Add(-clockError)) && now.Sub(p.proof.Plain) < dataplane.ProofTimeout:
		return model.PathFiltered
	}
	return model.PathSilent
}

// wantsProbe reports whether it is time for a probe.
func (p *path) wantsProbe(now time.Time) bool {
	return p.onLink && p.mac != (dataplane.MAC{}) && !p.awaited && !now.Before(p.due)
}

// probed records that a probe was sent.
func (p *path) probed(now time.Time) { p.sent, p.awaited = now, true }

// clockError is how much earlier than it was sent an answer may seem to have come: times in the kernel are
// rounded.
const clockError = 20 * time.Millisecond

// answered takes over which answers came back, and reports whether that ended the waiting for one.
func (p *path) answered(proof dataplane.Proof, now time.Time) (ended bool) {
	if proof.Foreign.Before(p.since) {
		proof.Foreign = time.Time{}
	}
	if proof.Plain.Before(p.since) {
		proof.Plain = time.Time{}
	}
	p.proof = proof
	if !p.awaited {
		return false
	}
	if !proof.Foreign.Before(p.sent.Add(-clockError)) {
		p.awaited, p.missed, p.due = false, 0, p.sent.Add(probePeriod)
		return true
	}
	if now.Sub(p.sent) < answerTime {
		return false
	}
	if p.awaited = false; p.missed == 0 {
		p.lost = p.sent
	}
	p.missed++
	wait := time.Duration(0)
	if p.missed > patience {
		wait = min(answerTime<<min(p.missed-patience, 10), unprovenPeriod)
	}
	p.due = now.Add(wait)
	return true
}

// restart is for a neighbour that is another one, or is gone.
func (p *path) restart(now time.Time) {
	p.proof, p.missed, p.awaited, p.due, p.since = dataplane.Proof{}, 0, false, now, now
}
