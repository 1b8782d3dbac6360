package health

import (
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/plan"
)

// startingFor is how long a node that starts may be without its Node object, as
// long as upstream waits for it.
const startingFor = 30 * time.Second

// Eligibility knows whether load balancers should send new connections to this
// node. That follows from what is known now, and not from what was before: of a
// Node that is gone no more is known than of one that never was.
type Eligibility struct {
	engine engine.Inspector
	clock  clock.PassiveClock
	began  time.Time
}

// NewEligibility returns the Eligibility of a node whose proxy starts now.
func NewEligibility(e engine.Inspector, c clock.PassiveClock) *Eligibility {
	return &Eligibility{e, c, c.Now()}
}

// Leaving is why no new connections should come; "" if they should.
func (e *Eligibility) Leaving() string {
	var found plan.Eligibility
	e.engine.Inspect(func(v engine.View) { found = v.Desired.Eligibility })
	if found.Starting && e.clock.Since(e.began) < startingFor {
		return ""
	}
	return found.Reason
}
