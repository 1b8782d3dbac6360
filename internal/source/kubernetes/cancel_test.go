package kubernetes

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// The end of our own watch is no failure of the server's, also if the stream hears of
// it before the context.
func TestCancelledWatchIsNoFailure(t *testing.T) {
	c := newConnection(logr.Discard(), clock.RealClock{})
	kind := &kind{name: "Node", apis: []*api{{groupVersion: "v1", resource: "nodes"}}}
	l := &listWatch{kind: kind, api: kind.apis[0], connection: c}
	c.reached(kind.name)
	for _, tt := range []struct {
		err       error
		connected bool
	}{
		{apierrors.NewInternalError(fmt.Errorf("unable to decode an event from the watch stream: %w", context.Canceled)), true},
		{apierrors.NewInternalError(fmt.Errorf("unable to decode an event from the watch stream: %w", context.DeadlineExceeded)), false},
	} {
		if l.failed(t.Context(), tt.err); c.status().Connected != tt.connected {
			t.Errorf("connected is %t after %v", !tt.connected, tt.err)
		}
	}
}
