package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/model"
)

const (
	// gather is how long changes are debounced before the addresses are read
	// again: an interface is seldom configured with one address only.
	gather = 5 * time.Millisecond
	// retryAfter is the pause after a failure.
	retryAfter = time.Second
)

// errLost says that the kernel's notifications ended, which happens when they
// arrive faster than they are read.
var errLost = errors.New("the kernel's notifications of address changes ended")

// Options configures a Source.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock
}

// Source follows the addresses of the machine's interfaces, in the network
// namespace of the goroutine that runs it.
type Source struct {
	logger    logr.Logger
	clock     clock.Clock
	subscribe func(changes chan<- changed, done <-chan struct{}) error
	synced    bool
	last      []netip.Addr
}

// New returns a Source.
func New(o Options) *Source {
	return &Source{logger: o.Logger, clock: o.Clock, subscribe: subscribe}
}

// Run passes the addresses to sink, initially and whenever they change, until
// ctx is done. After a failure it reads all addresses again. Where the kernel reports no
// changes, as in some sandboxes, they are thus read every now and then.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	for last := ""; ; {
		err := s.follow(ctx, sink)
		if ctx.Err() != nil {
			return nil
		}
		if last != err.Error() {
			last = err.Error()
			s.logger.Error(err, "Cannot follow the machine's addresses, trying again", "after", retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(retryAfter):
		}
	}
}

// follow subscribes before it lists, so that no change is missed in between.
func (s *Source) follow(ctx context.Context, sink model.Sink) error {
	changes := make(chan changed, 64)
	done := make(chan struct{})
	if err := s.subscribe(changes, done); err != nil {
		return errors.Join(fmt.Errorf("subscribe to address changes: %w", err), s.report(sink))
	}
	defer func() {
		close(done)
		for range changes {
			// The subscription ends only when its sends do not block.
		}
	}()
	if err := s.report(sink); err != nil {
		return err
	}
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changes:
			if !ok {
				return errLost
			}
			if due == nil {
				due = s.clock.After(gather)
			}
		case <-due:
			due = nil
			if err := s.report(sink); err != nil {
				return err
			}
		}
	}
}

func (s *Source) report(sink model.Sink) error {
	ips, err := addresses()
	if err != nil {
		return err
	}
	if !s.synced || !slices.Equal(s.last, ips) {
		s.logger.V(2).Info("Machine has addresses", "ips", ips)
		sink.Update(model.SetHostIPs{IPs: ips})
		s.last = ips
	}
	if !s.synced {
		s.synced = true
		sink.Synced()
	}
	return nil
}
