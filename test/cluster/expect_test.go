package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/test/lab"
)

// expect waits until all flows have the expected outcome, in one round.
func (s *site) expect(when string, expectations ...expectation) {
	s.Helper()
	s.expectWithin(timeout, when, expectations...)
}

// expectWithin is expect with another timeout.
func (s *site) expectWithin(timeout time.Duration, when string, expectations ...expectation) {
	s.Helper()
	s.within(timeout, when, func(ctx context.Context) error {
		var flows []lab.Flow
		var owners []expectation
		for _, e := range expectations {
			for _, f := range e.flows {
				if e.kind != lab.Answered {
					f.Timeout = lab.ShortTimeout
				}
				flows, owners = append(flows, f), append(owners, e)
			}
		}
		var errs []error
		for i, o := range s.lab.Probe(ctx, flows) {
			if err := owners[i].check(flows[i], o); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			return fmt.Errorf("%d of %d flows differ, the first: %w", len(errs), len(flows), errors.Join(errs[:min(3, len(errs))]...))
		}
		return nil
	})
}

// traffic starts background traffic on working flows. The returned function stops
// it and fails the test if anything was lost.
func (s *site) traffic(flows []lab.Flow) (stop func()) {
	s.Helper()
	t, err := s.lab.StartTraffic(s.Context(), flows, lab.TrafficOptions{Rate: 50, Sessions: 2})
	if err != nil {
		s.Fatal(err)
	}
	return func() {
		s.Helper()
		count := t.Stop()
		if count.Lost() > 0 || count.Opened == 0 {
			s.Errorf("traffic: %v", count)
		}
		s.Logf("traffic: %v", count)
	}
}
