//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/test/lab"
)

// openUnanswered opens connections that get no answer yet.
func (r *runner) openUnanswered(name string, f flows) error {
	single, err := r.expand(f)
	if err != nil {
		return err
	}
	for _, flow := range single {
		flow.Timeout = lab.ShortTimeout
		s, err := r.lab.Open(flow)
		if err != nil {
			return err
		}
		r.sessions[name] = append(r.sessions[name], &session{Session: s, flow: flow})
		if a, err := s.Ask(); err == nil {
			return fmt.Errorf("%v: answered by %s, want nobody", flow, a.By)
		}
	}
	return nil
}

// nobody stands for no host at all.
const nobody = "nobody"

func parseMoved(_ *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) != 3 || words[1] != "to" {
		return nil, errors.New("want NAME to HOSTS")
	}
	hosts := splitList(words[2])
	for _, host := range hosts {
		name, _, _ := strings.Cut(host, ":")
		if host != nobody && !knownHost(name) {
			return nil, fmt.Errorf("the lab has no host %q", host)
		}
	}
	return does(func(ctx context.Context, r *runner) error {
		if len(r.sessions[words[0]]) == 0 {
			return fmt.Errorf("no connection is called %q", words[0])
		}
		for _, s := range r.sessions[words[0]] {
			if err := r.eventually(ctx, func() error { return s.movedTo(hosts) }); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// movedTo asks who answers now.
func (s *session) movedTo(hosts []string) error {
	a, err := s.Ask()
	switch {
	case err != nil && !slices.Contains(hosts, nobody):
		return err
	case err != nil:
		a.By = nobody
	}
	if !slices.Contains(hosts, nameAmong(hosts, a)) {
		return fmt.Errorf("%v: answered by %s, want %s", s.flow, a.By, strings.Join(hosts, " or "))
	}
	s.by = a.By
	return nil
}
