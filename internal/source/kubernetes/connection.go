package kubernetes

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// connection sums up how the requests for all kinds fare. An episode begins
// with the first that fails and ends when none does any more.
type connection struct {
	logger logr.Logger
	clock  clock.Clock

	mu       sync.Mutex
	answered bool             // at least once
	failing  map[string]error // by kind
	since    time.Time        // of this episode, or of the time without one
}

func newConnection(logger logr.Logger, clk clock.Clock) *connection {
	return &connection{logger: logger, clock: clk, failing: map[string]error{}, since: clk.Now()}
}

// reached says that the server answered a request for a kind.
func (c *connection) reached(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, failed := c.failing[kind]
	delete(c.failing, kind)
	if len(c.failing) > 0 || c.answered && !failed {
		return
	}
	now := c.clock.Now()
	if failed {
		c.logger.Info("Connected to the API server again", "after", now.Sub(c.since))
	} else {
		c.logger.Info("Connected to the API server")
	}
	c.answered, c.since = true, now
}

// failed says that a request for a kind failed.
func (c *connection) failed(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failing) == 0 {
		c.since = c.clock.Now()
		c.logger.Error(err, "Cannot reach the API server, trying again for as long as it takes; what is known stays in force",
			"kind", kind, "since", c.since, "remedy", remedy(err))
	}
	c.failing[kind] = err
}

func (c *connection) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Connected: c.answered && len(c.failing) == 0, Since: c.since}
	for _, kind := range slices.Sorted(maps.Keys(c.failing)) {
		s.Reason = c.failing[kind]
		break
	}
	return s
}

func remedy(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "allow the proxy's user to list and watch this kind, as ClusterRole system:node-proxier does"
	case apierrors.IsUnauthorized(err):
		return "give the proxy credentials that the server accepts"
	}
	return "see that the server runs, and that this node can reach it"
}
