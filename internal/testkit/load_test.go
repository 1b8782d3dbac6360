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
