//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"sluice/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lanes:", err)
		os.Exit(1)
	}
}

// command runs the suite that the arguments name, or some of its lanes.
func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("lanes", flag.ContinueOnError)
	o := options{}
	flags.StringVar(&o.testArgs, "args", "", "more arguments for go test, such as '-run TestScenarios -v'")
	flags.StringVar(&o.timeout, "timeout", "40m", "limit for the tests of a package")
	flags.DurationVar(&o.fuzz, "fuzztime", time.Minute, "how long to try each fuzz target")
	if err := flags.Parse(args); err != nil {
		return err
	}
	suite, ok := suites[flags.Arg(0)]
	if !ok {
		return fmt.Errorf("name a suite: %s", strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	}
	lanes, err := choose(suite.lanes(o), flags.Args()[1:])
	if err != nil {
		return err
	}
	if suite.startsProxy {
		if err := buildProxy(); err != nil {
			return err
		}
	}
	b := newBoard(out, lanes, isTerminal(out))
	b.run(ctx)
	return b.report()
}

// buildProxy builds the proxy once for the tests of all packages that start it.
func buildProxy() error {
	binary, err := lab.Binary()
	if err != nil {
		return err
	}
	return os.Setenv(lab.BinaryVariable, binary)
}

// choose returns the lanes with these names, or all of them.
func choose(lanes []lane, names []string) ([]lane, error) {
	if len(names) == 0 {
		return lanes, nil
	}
	var chosen []lane
	for _, name := range names {
		i := slices.IndexFunc(lanes, func(l lane) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no lane %q", name)
		}
		chosen = append(chosen, lanes[i])
	}
	return chosen, nil
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
