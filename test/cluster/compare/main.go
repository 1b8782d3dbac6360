// Command compare measures kube-proxies side by side, with the same API server, objects
// and packets: ours, and any other that takes upstream's flags.
//
//	go run ./compare -services 10000 -endpoints 2
//	go run ./compare -modes nftables -ours ../../bin/kube-proxy -other /usr/local/bin/kube-proxy
//
// What counts is what a client sees: a figure ends when connections through a Service
// reach the right endpoint. Each kube-proxy runs alone, on a node of its own, with the
// settings that it has by default. These are wall times of one machine, which may be busy:
// look at the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

// options are the flags.
type options struct {
	ours, other         string
	modes               string
	rounds              int
	onlyRates           bool
	services, endpoints int
	limit               time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.ours, "ours", "../../bin/kube-proxy", "our kube-proxy")
	flag.StringVar(&o.other, "other", "", "the kube-proxy to compare it with; upstream's, which is built if necessary, if empty")
	flag.StringVar(&o.modes, "modes", "nftables,iptables", "modes to compare, separated by commas")
	flag.IntVar(&o.services, "services", 10_000, "number of Services")
	flag.IntVar(&o.endpoints, "endpoints", 2, "number of endpoints of each Service")
	flag.IntVar(&o.rounds, "rounds", 30, "rounds in which new connections are compared; 0 for none")
	flag.BoolVar(&o.onlyRates, "only-connections", false, "compare nothing but connections")
	flag.DurationVar(&o.limit, "limit", time.Minute, "longest time for the single changes of a kube-proxy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	binaries, err := apiserver.Build(ctx, func(what string) { fmt.Println(what) })
	if err != nil {
		return err
	}
	if o.other == "" {
		o.other = binaries.KubeProxy
	}
	if err := check(o.services, o.endpoints); err != nil {
		return err
	}
	contestants, err := o.contestants()
	if err != nil {
		return err
	}
	if err := lab.Sweep(); err != nil {
		return err
	}
	fmt.Printf("Creating %d Services with %d endpoints each at a real API server\n", o.services, o.endpoints)
	c, err := newCluster(ctx, binaries, o.services, o.endpoints)
	if err != nil {
		return err
	}
	defer c.close()
	if o.onlyRates {
		return c.compareRates(ctx, os.Stdout, contestants, o.rounds)
	}
	var all []figures
	for _, k := range contestants {
		fmt.Printf("Measuring %s (%s) in %s mode\n", k.name, k.path, k.mode)
		f, err := c.measure(ctx, k, o.limit)
		if err != nil {
			return fmt.Errorf("%s in %s mode: %w", k.name, k.mode, err)
		}
		all = append(all, f)
		fmt.Printf("  cold start %s s, one change %s ms\n", seconds(f.start), milliseconds(f.changes[len(f.changes)/2]))
	}
	if err := report(os.Stdout, all); err != nil || o.rounds == 0 {
		return err
	}
	return c.compareRates(ctx, os.Stdout, contestants, o.rounds)
}

// contestant is a kube-proxy in a mode.
type contestant struct {
	name, path, mode string
	flags            []string
}

// The names of contestants.
const ours, theOther = "ours", "the other"

// contestants returns ours and the other in each mode.
func (o options) contestants() ([]contestant, error) {
	var out []contestant
	for mode := range strings.SplitSeq(o.modes, ",") {
		for _, k := range []contestant{{name: ours, path: o.ours, mode: mode}, {name: theOther, path: o.other, mode: mode}} {
			path, err := filepath.Abs(k.path)
			if err != nil {
				return nil, err
			}
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("%w (build it, or name another)", err)
			}
			k.path = path
			out = append(out, k)
		}
	}
	return out, nil
}
