package userspace

import (
	"context"
	"time"
)

const (
	// pollEvery is how often Finish looks around.
	pollEvery = 50 * time.Millisecond
	// successorTime is how long it takes at most until another process that waits for
	// this one to end takes its place.
	successorTime = 600 * time.Millisecond
	// takeoverTime is how long that needs to lead new connections to itself.
	takeoverTime = 3 * time.Second
)

// Finish serves until no connection is left, or ctx ends. While another process takes
// over, new connections are served as well.
func (d *Dataplane) Finish(ctx context.Context, succeeded func() bool) (left int) {
	deadline, waits := time.Now().Add(successorTime), true
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if waits && succeeded() {
			deadline, waits = time.Now().Add(takeoverTime), false
		}
		now, _ := d.budget.Connections()
		if now == 0 && time.Now().After(deadline) {
			return 0
		}
		select {
		case <-ctx.Done():
			return now
		case <-ticker.C:
		}
	}
}
