package health

import (
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/plan"
)

// startingFor is how long a starting node may be without its Node object.
// Upstream waits for it as long.
const startingFor = 30 * time.Second

// Eligibility determines whether load balancers should send new connections to
// this node. It depends on the current Node object only: a deleted Node is like
// one that never existed.
type Eligibility struct {
	engine engine.Inspector
	clock  clock.PassiveClock
	began  time.Time
}

// NewEligibility returns the Eligibility of a node whose proxy starts now.
func NewEligibility(e engine.Inspector, c clock.PassiveClock) *Eligibility {
	return &Eligibility{e, c, c.Now()}
}

// Leaving returns why there should be no new connections; "" if there should.
func (e *Eligibility) Leaving() string {
	var found plan.Eligibility
	e.engine.Inspect(func(v engine.View) { found = v.Desired.Eligibility })
	if found.Starting && e.clock.Since(e.began) < startingFor {
		return ""
	}
	return found.Reason
}
