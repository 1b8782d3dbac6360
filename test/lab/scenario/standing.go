//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"sluice/test/lab"
)

// session is a connection that a script holds open.
type session struct {
	*lab.Session
	flow lab.Flow
	by   string // the host that answered first
}

func parseOpen(p *parser, rest string) (action, error) {
	name, rest, _ := strings.Cut(rest, " ")
	f, words, err := p.parseFlows(rest, lab.TCP)
	if err != nil {
		return nil, err
	}
	if len(words) == 1 && words[0] == "unanswered" {
		return does(func(_ context.Context, r *runner) error { return r.openUnanswered(name, f) }), nil
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("nothing may follow, but %q does", words)
	}
	return does(func(_ context.Context, r *runner) error { return r.open(name, f) }), nil
}

func (r *runner) open(name string, f flows) error {
	single, err := r.expand(f)
	if err != nil {
		return err
	}
	for _, flow := range single {
		s, err := r.lab.Open(flow)
		if err != nil {
			return err
		}
		a, err := s.Ask()
		if err != nil {
			return errors.Join(err, s.Close())
		}
		r.sessions[name] = append(r.sessions[name], &session{Session: s, flow: flow, by: a.By})
	}
	return nil
}

func parseAlive(_ *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) != 1 && (len(words) != 3 || words[1] != "by") {
		return nil, errors.New("want NAME or NAME by HOST")
	}
	return does(func(_ context.Context, r *runner) error {
		return r.eachSession(words[0], func(s *session) error {
			want := s.by
			if len(words) == 3 {
				want = words[2]
			}
			a, err := s.Ask()
			if err == nil && a.By != want {
				err = fmt.Errorf("%v: answered by %s, want %s", s.flow, a.By, want)
			}
			return err
		})
	}), nil
}

// eachSession does something with all connections of a name at once: some wait for an answer that never comes.
func (r *runner) eachSession(name string, do func(*session) error) error {
	sessions := r.sessions[name]
	if len(sessions) == 0 {
		return fmt.Errorf("no connection is called %q", name)
	}
	errs := make([]error, len(sessions))
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() { errs[i] = do(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func parseTraffic(p *parser, rest string) (action, error) {
	f, words, err := p.parseFlows(rest, lab.TCP, lab.UDP)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("nothing may follow, but %q does", words)
	}
	return does(func(ctx context.Context, r *runner) error {
		if r.traffic != nil {
			return errors.New("there is traffic already")
		}
		single, err := r.expand(f)
		if err != nil {
			return err
		}
		r.traffic, err = r.lab.StartTraffic(ctx, single, lab.TrafficOptions{Rate: 200, Sessions: 2})
		return err
	}), nil
}

func parseLost(_ *parser, rest string) (action, error) {
	most, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("want a number: %w", err)
	}
	return does(func(_ context.Context, r *runner) error {
		if r.traffic == nil {
			return errors.New("there is no traffic")
		}
		count := r.traffic.Stop()
		r.traffic = nil
		r.Logf("traffic: %v", count)
		if count.Lost() > most {
			return fmt.Errorf("%v", count)
		}
		if count.Opened == 0 {
			return errors.New("no connection was opened in the meantime")
		}
		return nil
	}), nil
}
