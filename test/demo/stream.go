//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"sluice/test/lab"
)

// streamWorkers is the number of concurrent connections of a stream.
const streamWorkers = 4

// stream opens one connection after another and records each.
type stream struct {
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mutex    sync.Mutex
	attempts []attempt
}

type attempt struct {
	begun time.Time
	lab.Outcome
}

// openStream starts a stream over the flows, in turn.
func (d *demo) openStream(ctx context.Context, flows []lab.Flow) *stream {
	s := &stream{}
	ctx, s.cancel = context.WithCancel(ctx)
	for w := range streamWorkers {
		s.workers.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				begun := time.Now()
				// Not ctx: an attempt that has begun is finished and counted.
				o := d.lab.Connect(context.WithoutCancel(ctx), flows[i%len(flows)])
				s.mutex.Lock()
				s.attempts = append(s.attempts, attempt{begun, o})
				s.mutex.Unlock()
			}
		})
	}
	return s
}

// close ends the stream and returns its outcomes.
func (s *stream) close() []attempt {
	s.cancel()
	s.workers.Wait()
	return s.attempts
}
