package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// Whatever hangs, the process ends: also if nobody reads what it says about that.
func TestProcessEndsWhateverHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hang := make(chan struct{})
	defer close(hang)
	hangs := func() int { <-hang; return 0 }
	e := &end{}
	e.starting()
	var stderr strings.Builder
	if code := e.await(ctx, &stderr, hangs); code != 1 || !strings.HasPrefix(stderr.String(), "Error: told to end 1s ago") {
		t.Errorf("it ends with %d: %s", code, stderr.String())
	}
	unread, stuck := io.Pipe()
	defer unread.Close()
	if code := e.await(ctx, stuck, hangs); code != 1 {
		t.Errorf("without a reader it ends with %d", code)
	}
	if code := e.await(ctx, io.Discard, func() int { return 2 }); code != 2 {
		t.Errorf("what does not hang ends with %d", code)
	}
}

// Pods have 30 seconds to end by default.
func TestLimitOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		note func(*end)
		want time.Duration
	}{
		{"a command", func(*end) {}, 10 * time.Second},
		{"starting", (*end).starting, time.Second},
		{"serving", func(e *end) { e.serving(0) }, 10 * time.Second},
		{"forwarding connections", func(e *end) { e.serving(defaultShutdownGrace) }, 28 * time.Second},
		{"forwarding connections that end at once", func(e *end) { e.serving(time.Second) }, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &end{}
			tt.note(e)
			if got := e.limit(); got != tt.want {
				t.Errorf("it has %v, want %v", got, tt.want)
			}
		})
	}
}
