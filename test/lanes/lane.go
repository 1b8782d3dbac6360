//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lane is a list of steps that run one after the other. One that fails ends the lane unless
// the steps after it do not depend on it.
type lane struct {
	name  string
	steps []step
}

// step is a command, or a go test whose events are read.
type step struct {
	name string
	dir  string // in the repository
	args []string
	env  []string
	// tests says that args are those of go test, without -json.
	tests bool
	// needed says that what comes after in its lane makes no sense without it.
	needed bool
	// optional returns why a failure with this output is none; empty if it is one.
	optional func(output string) string
}

// stepOutcome is how a step went, or goes.
type stepOutcome struct {
	step
	lane       string
	start, end time.Time
	tests      outcome
	total      int // packages
	output     bytes.Buffer
	err        error
	skipped    string // why its failure is none
}

// command returns the command of a step. It ends with its children when the context does.
func (s step) command(ctx context.Context) *exec.Cmd {
	args := s.args
	if s.tests {
		args = slices.Concat([]string{"go", "test", "-json"}, args)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	// Interrupted by a terminal, all would end at once, and without their clean-ups:
	// go test forwards what it gets to its children, and these have some time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// packages counts those that a go test is about, to say how far it is.
func (s step) packages(ctx context.Context) int {
	args := []string{"list"}
	for _, arg := range s.args {
		if strings.HasPrefix(arg, "./") || arg == "." {
			args = append(args, arg)
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		return 0 // go test will say what is wrong
	}
	return bytes.Count(out, []byte("\n"))
}

// run runs a step, and hands on what it prints.
func (b *board) runStep(ctx context.Context, s *stepOutcome) {
	cmd := s.command(ctx)
	if !s.step.tests {
		cmd.Stdout, cmd.Stderr = &s.output, &s.output
		b.finish(s, cmd.Run())
		return
	}
	total := s.packages(ctx)
	b.update(func() { s.total = total })
	cmd.Stderr = &s.output
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.finish(s, err)
		return
	}
	errRead := readEvents(events, func(e event) { b.take(s, e) })
	if err := cmd.Wait(); err != nil {
		b.finish(s, err)
		return
	}
	b.finish(s, errRead)
}

// runLane runs the steps of a lane.
func (b *board) runLane(ctx context.Context, l lane) {
	for _, st := range l.steps {
		if ctx.Err() != nil {
			return
		}
		s := b.begin(l, st)
		b.runStep(ctx, s)
		if s.err != nil && s.needed {
			b.update(func() {
				b.abandoned = append(b.abandoned, fmt.Sprintf("%s: what comes after %s was not run", l.name, st.name))
			})
			return
		}
	}
}
