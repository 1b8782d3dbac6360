package sandbox

import (
	"context"
	"time"
)

// finishPoll is the time between two looks at the connections that are left.
const finishPoll = 20 * time.Millisecond

// Finish implements dataplane.Forwarder. It releases all addresses first, since two
// processes cannot listen on them.
func (d *Dataplane) Finish(ctx context.Context, _ func() bool) (left int) {
	d.mu.Lock()
	for _, p := range d.ports {
		d.remove(p)
	}
	d.mu.Unlock()
	for {
		left, _ = d.Budget.Connections()
		if left == 0 || ctx.Err() != nil {
			return left
		}
		time.Sleep(finishPoll)
	}
}
