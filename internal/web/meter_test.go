package web

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// bench is a meter and the kernel that it reads.
type bench struct {
	*meter
	clock  *clocktesting.FakeClock
	counts map[plan.Key]int64
	err    error
	slow   time.Duration
	reads  int
}

func newBench() *bench {
	b := &bench{clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))}
	b.meter = newMeter(func(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.Strays, error) {
		b.reads++
		b.clock.SetTime(b.clock.Now().Add(b.slow))
		if b.err != nil {
			return dataplane.Strays{}, b.err
		}
		for key, n := range b.counts {
			each(key, dataplane.Traffic{Connections: n})
		}
		return dataplane.Strays{}, nil
	}, logr.Discard(), b.clock)
	return b
}

func (b *bench) after(d time.Duration, counts map[plan.Key]int64) reading {
	b.clock.Step(d)
	b.counts = counts
	return b.read(context.Background())
}

var web, shop = key("10.96.0.80"), key("10.96.0.81")

func TestRatesAreDifferencesOverTime(t *testing.T) {
	b := newBench()
	if r := b.after(0, map[plan.Key]int64{web: 100}); r.rates != nil || !r.counted() {
		t.Errorf("first reading is %+v, want no rates yet", r)
	}
	r := b.after(4*time.Second, map[plan.Key]int64{web: 140, shop: 2})
	if diff := cmp.Diff(map[plan.Key]float64{web: 10, shop: 0.5}, r.rates, cmp.Comparer(func(a, b plan.Key) bool { return a == b })); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	if total, known := r.total(); total != 10.5 || !known {
		t.Errorf("total is %g, %t", total, known)
	}
	r = b.after(2*time.Second, map[plan.Key]int64{web: 4, shop: 2})
	if r.rates[web] != 2 || len(r.rates) != 1 {
		t.Errorf("rates are %v after a counter started again, want its 4 in 2 s", r.rates)
	}
}

func TestCountersAreReadOnceForAllWhoLook(t *testing.T) {
	b := newBench()
	for range 5 {
		b.after(time.Second, nil)
	}
	if b.reads != 3 {
		t.Errorf("read %d times in 5 s, want every 2 s", b.reads)
	}
}

func TestCountersThatAreSlowToReadAreReadLessOften(t *testing.T) {
	b := newBench()
	b.slow = time.Second
	b.after(0, nil)
	b.after(19*time.Second, nil)
	if b.reads != 1 {
		t.Errorf("read %d times within 19 s, want once", b.reads)
	}
	b.after(time.Second, nil)
	if b.reads != 2 {
		t.Errorf("read %d times after 20 s, want twice", b.reads)
	}
}

func TestWhatWasReadStandsWhenTheKernelDoesNotAnswer(t *testing.T) {
	b := newBench()
	b.after(0, map[plan.Key]int64{web: 1})
	b.err = errors.New("busy")
	if r := b.after(2*time.Second, nil); r.counts[web] != 1 {
		t.Errorf("reading is %+v", r)
	}
}

func TestCountersAreForgottenWhenNobodyLooks(t *testing.T) {
	b := newBench()
	b.after(0, map[plan.Key]int64{web: 1})
	b.after(forgetAfter-time.Second, map[plan.Key]int64{web: 1})
	b.clock.Step(forgetAfter + time.Second)
	testkit.Eventually(t, func() error { // it is forgotten on a goroutine of the clock
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.now.counts != nil {
			return errors.New("the counters are still there")
		}
		return nil
	})
	if r := b.after(time.Second, map[plan.Key]int64{web: 9}); r.rates != nil {
		t.Errorf("rates are %v, though nobody looked for long", r.rates)
	}
}
