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
	}
	return r.eachSession(name, func(s *session) error {
		if a, err := s.Ask(); err == nil {
			return fmt.Errorf("%v: answered by %s, want nobody", s.flow, a.By)
		}
		return nil
	})
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
		return r.eachSession(words[0], func(s *session) error {
			return r.eventually(ctx, func() error { return s.movedTo(hosts) })
		})
	}), nil
}

// movedTo asks who answers now.
func (s *session) movedTo(hosts []string) error {
	mayBeNobody, timeout := slices.Contains(hosts, nobody), lab.DefaultTimeout
	if mayBeNobody {
		timeout = lab.ShortTimeout
	}
	s.SetTimeout(timeout)
	a, err := s.Ask()
	switch {
	case err != nil && !mayBeNobody:
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
