package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/answer/control"
	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/observe/verdict"
)

// statusEvery is the period of --watch.
const statusEvery = time.Second

func newStatus() *cobra.Command {
	s := &statusCommand{}
	cmd := &cobra.Command{
		Use:   "status [--watch]",
		Short: "Show the status of the proxy on this node",
		Long: `status asks the proxy on this node what it waits for, how many frontends are in
the kernel, what failed and why, and what it did last.

Exit codes: 0 if the proxy serves, and the kernel refused nothing, 1 if not, 2 if there
is no answer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.client, s.out = newClient(s.socket), cmd.OutOrStdout()
			defer s.client.Close()
			if s.watch {
				return failed(s.follow(cmd.Context()))
			}
			return s.once(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&s.watch, "watch", "w", false, "Keep showing the status, until interrupted.")
	s.format.AddFlags(cmd)
	addSocketFlag(flags, &s.socket)
	return asking(cmd)
}

type statusCommand struct {
	socket string
	watch  bool
	format output.Format
	client *control.Client
	out    io.Writer
}

func (s *statusCommand) once(ctx context.Context) error {
	r, err := s.ask(ctx)
	if err != nil {
		return failed(err)
	}
	if err := s.write(r); err != nil {
		return failed(err)
	}
	if r.Word != verdict.Serving || !r.Healthy || r.Frontends.Failed > 0 {
		return &exit{code: exitNo}
	}
	return nil
}

func (s *statusCommand) ask(ctx context.Context) (*status.Report, error) {
	r := &status.Report{}
	return r, s.client.Get(ctx, question.StatusPage, nil, r)
}

func (s *statusCommand) write(r *status.Report) error {
	return s.format.Write(s.out, r, func(w io.Writer) error { return status.Write(w, r) })
}

// follow shows the status repeatedly. If the proxy does not answer it may be
// starting.
func (s *statusCommand) follow(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	before := s.between()
	for {
		if _, err := io.WriteString(s.out, before); err != nil {
			return err
		}
		r, err := s.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			_, err = fmt.Fprintln(s.out, printable.Escape(err.Error()))
		default:
			err = s.write(r)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// between is written before each status: on a terminal it clears the previous one,
// elsewhere it is an empty line.
func (s *statusCommand) between() string {
	if output.IsTerminal(s.out) {
		return s.format.Separator("\x1b[H\x1b[2J")
	}
	return s.format.Separator("\n")
}
