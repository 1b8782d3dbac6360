//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func parseReset(_ *parser, rest string) (action, error) {
	name, how, _ := strings.Cut(rest, " ")
	if name == "" || how != "" && how != "when sending" {
		return nil, errors.New("want NAME or NAME when sending")
	}
	return does(func(ctx context.Context, r *runner) error {
		return r.eachSession(name, func(s *session) error {
			return r.eventually(ctx, func() error { return s.wasReset(how != "") })
		})
	}), nil
}

// wasReset reports whether a client learns that its connection is gone, by
// waiting for an answer or by asking.
func (s *session) wasReset(asks bool) error {
	var err error
	if asks {
		_, err = s.Ask()
	} else {
		err = s.Listen()
	}
	// After a reset, writing fails with a broken pipe.
	if errors.Is(err, unix.ECONNRESET) || asks && errors.Is(err, unix.EPIPE) {
		return nil
	}
	return fmt.Errorf("%v: not reset, but: %v", s.flow, err)
}
