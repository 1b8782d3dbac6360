//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/test/lab"
)

// httpExpectation is the answer that HTTP servers must give.
type httpExpectation struct {
	flows
	status int
	text   string // in header or body
}

func parseHTTP(p *parser, rest string) (action, error) {
	f, words, err := p.parseFlows(rest, lab.TCP)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("want a status at the end")
	}
	status, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, fmt.Errorf("want a status: %w", err)
	}
	return &httpExpectation{f, status, strings.Join(words[1:], " ")}, nil
}

func (e *httpExpectation) run(ctx context.Context, r *runner) error {
	r.remember(e)
	single, err := r.expand(e.flows)
	if err != nil {
		return err
	}
	return r.eventually(ctx, func() error {
		var errs []error
		for _, f := range single {
			errs = append(errs, e.check(r, f))
		}
		return errors.Join(errs...)
	})
}

func (e *httpExpectation) check(r *runner, f lab.Flow) error {
	page, err := r.lab.Get(f, "/")
	if err != nil {
		return err
	}
	if !e.holds(page) {
		return fmt.Errorf("%v: answered\n%s", f, page.Text)
	}
	return nil
}

func (e *httpExpectation) holds(page lab.Page) bool {
	return page.Status == e.status && strings.Contains(page.Text, e.text)
}
