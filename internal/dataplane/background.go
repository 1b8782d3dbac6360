package dataplane

import (
	"context"
	"sync"
)

// Background runs tasks of a Dataplane until stop is called, which waits for them.
func Background(tasks ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}
