package dataplane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCommitsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Commits
		c.Begin()
		ctx, cancel := context.WithCancel(t.Context())
		var impatient error
		var waiting sync.WaitGroup
		waiting.Go(func() { impatient = c.Turn(ctx) })
		inTurn, at := 0, uint64(0)
		for range 3 {
			waiting.Go(func() {
				if err := c.Turn(t.Context()); err != nil {
					t.Error(err)
				}
				if inTurn++; inTurn > 1 {
					t.Error("two commits at once")
				}
				synctest.Wait() // for all others to wait
				inTurn--
				c.End()
			})
		}
		waiting.Go(func() {
			if err := c.WhenIdle(t.Context(), func(n uint64) { at = n }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		c.Locked(func() { // which needs no turn
			if n, idle := c.Count(); n != 1 || idle || at != 0 {
				t.Errorf("%d commits, idle %v, %d when it was idle", n, idle, at)
			}
		})
		cancel()
		synctest.Wait()
		if !errors.Is(impatient, context.Canceled) {
			t.Errorf("a turn after its context was done: %v", impatient)
		}
		c.End()
		waiting.Wait()
		if n, idle := c.Count(); n != 4 || !idle || at == 0 {
			t.Errorf("%d commits, idle %v, %d when it was idle", n, idle, at)
		}
	})
}
