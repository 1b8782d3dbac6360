package nodeproblem

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// What takes long to find out is found out again only if something has changed, and not before
// costFactor times as long has passed: rarely in large clusters, but often enough that warnings
// and verdicts follow.
const (
	costFactor = 200
	maxPause   = 3 * time.Second
)

// Fit finds out whether the configuration fits the cluster. That may need a walk over all
// Services, during which planning waits.
type Fit struct {
	Clock clock.PassiveClock

	mu                  sync.Mutex
	cfg                 *plan.Config
	version             uint64
	at                  time.Time
	cost                time.Duration
	node, configuration []model.Problem
}

// Look returns what is wrong with the name of the node, and with the configuration. Neither a
// Config nor a version of a State is used for different things.
func (f *Fit) Look(cfg *plan.Config, state *model.State, version uint64) (node, configuration []model.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	start := f.Clock.Now()
	if f.cfg != cfg || f.version != version && start.Sub(f.at) >= min(costFactor*f.cost, maxPause) {
		f.node, f.configuration = NodeName(cfg, state), ClusterCIDR(cfg, state)
		f.cfg, f.version, f.at = cfg, version, f.Clock.Now()
		f.cost = f.at.Sub(start)
	}
	return f.node, f.configuration
}
