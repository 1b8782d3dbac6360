package testkit

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestTimeoutsGrowWithTheLoad(t *testing.T) {
	processors := float64(runtime.NumCPU())
	for _, tt := range []struct {
		name       string
		load, want float64
	}{
		{"idle", 0, 1},
		{"all processors busy", processors, 1},
		{"five threads for each", 5 * processors, 5},
		{"stuck", 1000 * processors, maxSlowdown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := slowdown(tt.load); got != tt.want {
				t.Errorf("%v times longer, want %v", got, tt.want)
			}
		})
	}
	if got := Scaled(time.Second); got < time.Second || got > maxSlowdown*time.Second {
		t.Errorf("a second became %v", got)
	}
}

// TestTimeoutsGrowWithTheft reads what /proc/stat says of a guest: ticks in user, nice, system, idle, iowait,
// irq, softirq, steal.
func TestTimeoutsGrowWithTheft(t *testing.T) {
	var have theft
	for _, tt := range []struct {
		name, stat string
		want       float64
	}{
		{"a past of which nothing is known", "cpu  100 100 100 5000 10 100 100 4000 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 1},
		{"nothing stolen", "cpu  200 100 100 6000 20 100 100 4000 0 0\n", 1},
		{"three quarters stolen", "cpu  210 110 110 6000 20 110 110 4150 0 0\n", 4},
		{"too little to tell", "cpu  215 110 110 6000 20 110 110 4150 0 0\n", 4},
		{"less", "cpu  330 110 110 6000 20 110 110 4150 0 0\n", 3.75},
		{"all stolen", "cpu  330 110 110 6000 20 110 110 4350 0 0\n", 200},
	} {
		if have.take(tt.stat); have.slowdown != tt.want {
			t.Errorf("%s: %v times longer, want %v", tt.name, have.slowdown, tt.want)
		}
	}
	if have.take("nonsense"); have.slowdown != 1 {
		t.Errorf("nonsense: %v times longer", have.slowdown)
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", cause)
	}
	early, cancel := WithTimeout(t.Context(), time.Hour)
	cancel()
	<-early.Done()
	if cause := context.Cause(early); !errors.Is(cause, context.Canceled) {
		t.Errorf("it ended with %v", cause)
	}
}
