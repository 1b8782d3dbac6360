//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice/internal/engine"
)

// churnRate is how many slices change per second, each by one endpoint.
const churnRate = 1000

// churnFigures are the results of constant change.
type churnFigures struct {
	Sent, Committed int
	Took, CPU       time.Duration
	P50, P99, Worst time.Duration // from the event to the end of the commit with it
	Before, After   int64         // bytes resident
	Holds           bool          // the kernel has what it should have
}

// churned notes how long the events of each commit took: as long as the oldest of them.
type churned struct {
	mu        sync.Mutex
	committed int
	took      []span
}

// span is how long some events took at most.
type span struct {
	time.Duration
	events int
}

// Committed notes a commit.
func (c *churned) Committed(commit *engine.Commit) {
	if commit.Events.Slices == 0 || commit.Events.Since.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed += commit.Events.Slices
	c.took = append(c.took, span{commit.End.Sub(commit.Events.Since), commit.Events.Slices})
}

func (c *churned) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed, c.took = 0, nil
}

func (c *churned) has(events int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.committed >= events
}

// quantile returns how long that part of the events took at most.
func (c *churned) quantile(q float64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.took, func(a, b span) int { return int(a.Duration - b.Duration) })
	left := q * float64(c.committed)
	for _, s := range c.took {
		if left -= float64(s.events); left <= 0 {
			return s.Duration
		}
	}
	return 0
}

// measureChurn changes one slice after the other for a time.
func measureChurn(w workload, d time.Duration) (f churnFigures, err error) {
	cluster := newCluster(w)
	seen := &churned{}
	p, err := startObserved(w.Mode, cluster.events(), []engine.Observer{seen})
	if err != nil {
		return f, err
	}
	defer p.stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-p.commits:
			case <-done:
				return
			}
		}
	}()
	if f.Before, err = memoryOf("VmRSS:"); err != nil {
		return f, err
	}
	seen.reset()
	cpu, begin := totalTime(syscall.RUSAGE_SELF)+totalTime(syscall.RUSAGE_CHILDREN), time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for time.Since(begin) < d {
		<-ticker.C
		for due := int(time.Since(begin).Seconds() * churnRate); f.Sent < due; f.Sent++ {
			p.engine.Update(cluster.replaced(f.Sent * 7919)) // all over the cluster
		}
	}
	for end := time.Now().Add(time.Minute); !seen.has(f.Sent) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	f.Took, f.CPU = time.Since(begin), totalTime(syscall.RUSAGE_SELF)+totalTime(syscall.RUSAGE_CHILDREN)-cpu
	f.P50, f.P99, f.Worst = seen.quantile(0.5), seen.quantile(0.99), seen.quantile(1)
	f.Committed = seen.committed
	if f.After, err = memoryOf("VmRSS:"); err != nil {
		return f, err
	}
	f.Holds, err = p.dataplane.Verify(context.Background())
	return f, err
}

// reportChurn measures constant change in a process and a network namespace of its own.
func reportChurn(d time.Duration, s *scores) error {
	w := workload{Mode: "nftables", Services: 5000, Endpoints: 10}
	var f churnFigures
	if err := inChild(w, d+2*time.Minute, &f, "-churn", d.String(), "-churning"); err != nil {
		return err
	}
	fmt.Printf("\nconstant change, %v: %d of %d changes in the kernel, %.0f per second; %.3f of a core; p50 %s, p99 %s, longest %s; "+
		"memory %d → %d MB; the kernel holds what it should: %t\n", w, f.Committed, f.Sent, float64(f.Sent)/f.Took.Seconds(), f.CPU.Seconds()/f.Took.Seconds(),
		ms(f.P50), ms(f.P99), ms(f.Worst), f.Before>>20, f.After>>20, f.Holds)
	s.ofChurn(f)
	return nil
}
