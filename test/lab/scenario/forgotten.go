//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/test/lab"
)

// rounds is how often a host comes back before it counts as recognised every
// time. With three endpoints chance would do that to one flow in half a
// million.
const rounds = 13

func parseForgotten(p *parser, rest string) (action, error) {
	f, words, err := p.parseFlows(rest, lab.TCP, lab.UDP, lab.SCTP)
	if err != nil {
		return nil, err
	}
	if len(words) != 2 || words[0] != "after" {
		return nil, errors.New("want after DURATION at the end")
	}
	pause, err := time.ParseDuration(words[1])
	if err != nil {
		return nil, err
	}
	return does(func(ctx context.Context, r *runner) error {
		single, err := r.expand(f)
		if err != nil {
			return err
		}
		return r.forgotten(ctx, single, pause)
	}), nil
}

// forgotten connects again and again, after pauses in which affinity ends,
// until every flow has met another endpoint than at first.
func (r *runner) forgotten(ctx context.Context, flows []lab.Flow, pause time.Duration) error {
	met := map[lab.Flow]string{}
	for range rounds {
		var faithful []lab.Flow
		for i, o := range r.lab.Probe(ctx, flows) {
			f := flows[i]
			if o.Kind != lab.Answered {
				return fmt.Errorf("%v: %v", f, o)
			}
			if first, ok := met[f]; !ok || first == o.By {
				faithful = append(faithful, f)
			}
			met[f] = o.By
		}
		if len(faithful) == 0 {
			return nil
		}
		flows = faithful
		select {
		case <-time.After(pause + pause/4):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%v: still with %s after %d pauses", flows[0], met[flows[0]], rounds-1)
}
