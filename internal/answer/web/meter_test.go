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
)

// bench is a meter and the kernel that it reads.
type bench struct {
	*meter
	clock  *clocktesting.FakeClock
	counts map[plan.Key]int64
	err    error
	slow   time.Duration
	reads  int
	// refused are the refusals of every frontend.
	refused [plan.NumFrontendRefusals]int64
}

func newBench() *bench {
	b := &bench{clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))}
	b.meter = newMeter(func(_ context.Context, each func(plan.Key, dataplane.Traffic)) (dataplane.UnmatchedTraffic, error) {
		b.reads++
		b.clock.SetTime(b.clock.Now().Add(b.slow))
		if b.err != nil {
			return dataplane.UnmatchedTraffic{}, b.err
		}
		for key, n := range b.counts {
			each(key, dataplane.Traffic{Attempts: uint64(max(0, n)), Connections: n, Refused: b.refused})
		}
		return dataplane.UnmatchedTraffic{}, nil
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
	if r := b.after(0, map[plan.Key]int64{web: 100, shop: 7}); r.rates != nil || !r.counted() {
		t.Errorf("first reading is %+v, want no rates yet", r)
	}
	r := b.after(4*time.Second, map[plan.Key]int64{web: 140, shop: 9})
	if r.rates[web].Connections != 10 || r.rates[shop].Connections != 0.5 || r.total().Connections != 10.5 || !r.known() {
		t.Errorf("rates are %+v, want 10 and 0.5", r.rates)
	}
}

func TestRatesAreAveraged(t *testing.T) {
	b := newBench()
	var got []float64
	for i, n := range []int64{0, 20, 20, 20, 20, 20, 20, 20} { // every 2 s
		if r := b.after(minInterval, map[plan.Key]int64{web: 100 + n}); i > 0 {
			got = append(got, r.rates[web].Connections)
		}
	}
	if diff := cmp.Diff([]float64{10, 5, 20. / 6, 2.5, 2, 0, 0}, got); diff != "" {
		t.Errorf("rates after a burst of 20 (-want +got):\n%s", diff)
	}
	if len(b.past) > 6 {
		t.Errorf("%d readings are kept", len(b.past))
	}
}

func TestRefusalsHaveARateAndACause(t *testing.T) {
	b := newBench()
	b.after(0, map[plan.Key]int64{web: 0})
	b.refused[plan.NoLocalEndpoints], b.refused[plan.SourceRanges] = 4, 2
	r := b.after(2*time.Second, map[plan.Key]int64{web: 0}).of([]*plan.Frontend{{Key: web}})
	if r.Connections != 0 || r.Refused.Total() != 3 || r.Refused.Cause() != plan.NoLocalEndpoints {
		t.Errorf("rates are %+v, want 3 refusals per second, mostly for lack of a local endpoint", r)
	}
}

func TestFirstReadingHasNoRate(t *testing.T) {
	tests := []struct {
		name  string
		in    []map[plan.Key]int64 // what is read every 2 s
		total float64              // in the end
	}{
		{"nothing new", []map[plan.Key]int64{{web: 5e6}, {web: 5e6}}, 0},
		{"a frontend that appears", []map[plan.Key]int64{{}, {web: 5e6}}, 0},
		{"and goes on", []map[plan.Key]int64{{}, {web: 5e6}, {web: 5e6 + 4}}, 2},
		{"one that was left out while it changed", []map[plan.Key]int64{{web: 5e6}, {}, {web: 5e6 + 2}}, 0.5},
		{"one that starts again and goes on", []map[plan.Key]int64{{web: 5e6}, {web: 4}, {web: 8}}, 2},
		{"one that started again", []map[plan.Key]int64{{web: 5e6}, {web: 4}}, 0},
		{"one that went back a little", []map[plan.Key]int64{{web: 5e6}, {web: 5e6 - 1}}, 0},
		{"below zero", []map[plan.Key]int64{{web: -8}, {web: -4}}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench()
			var r reading
			for _, counts := range test.in {
				r = b.after(minInterval, counts)
			}
			if total := r.total().Connections; total != test.total || !r.known() {
				t.Errorf("total is %g, %t, want %g", total, r.known(), test.total)
			}
		})
	}
}

func TestCountersAreReadOnceForAll(t *testing.T) {
	b := newBench()
	for range 5 {
		b.after(time.Second, nil)
	}
	if b.reads != 3 {
		t.Errorf("read %d times in 5 s, want every 2 s", b.reads)
	}
}

func TestSlowCountersAreReadLessOften(t *testing.T) {
	tests := []struct {
		name string
		slow time.Duration // to read
		want time.Duration // between readings
	}{
		{"few", 100 * time.Microsecond, 2 * time.Second},
		{"many", 10 * time.Millisecond, 5 * time.Second},
		{"very many", time.Second, 30 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench()
			b.slow = test.slow
			b.after(0, nil)
			b.after(minInterval, nil) // for the first rates
			b.after(test.want-time.Millisecond, nil)
			if b.reads != 2 {
				t.Errorf("read %d times, want twice and then not within %s", b.reads, test.want)
			}
			b.after(time.Millisecond, nil)
			if b.reads != 3 {
				t.Errorf("read %d times, want again after %s", b.reads, test.want)
			}
		})
	}
}

func TestFirstRatesComeSoon(t *testing.T) {
	b := newBench()
	b.slow = time.Second
	b.after(0, map[plan.Key]int64{web: 1})
	if r := b.after(minInterval, map[plan.Key]int64{web: 7}); r.rates[web].Connections != 2 {
		t.Errorf("rates are %v, want 6 in 3 s", r.rates)
	}
}

func TestReadErrorsBackOff(t *testing.T) {
	b := newBench()
	b.slow, b.err = readTimeout, errors.New("busy")
	b.after(0, nil)
	b.after(maxInterval-time.Second, nil)
	if b.reads != 1 {
		t.Errorf("read %d times within %s, want once", b.reads, maxInterval)
	}
}

func TestReadErrorKeepsTheLastReading(t *testing.T) {
	b := newBench()
	b.after(0, map[plan.Key]int64{web: 1})
	b.err = errors.New("busy")
	if r := b.after(2*time.Second, nil); r.counts[web].Connections != 1 {
		t.Errorf("reading is %+v", r)
	}
}
