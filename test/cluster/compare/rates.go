package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"sluice/test/bench/connections"
	"sluice/test/lab"
)

// rateTime is how long connections are opened in a round on each node.
const rateTime = 100 * time.Millisecond

// clientCounts are how many clients there are at a time.
var clientCounts = []int{1, 16}

// lane is a node to connect across: one without rules, or that of a contestant.
type lane struct {
	name   string
	mode   string
	lab    *lab.Lab
	to     netip.AddrPort
	opened []float64 // connections per second, by round
}

// compareRates compares connections across the nodes of all contestants, which run at the same time and are measured
// in turns, so that other load on the machine matters little: connections through the last Service. Ours is measured twice: with counters for each Service, as by default, and without.
func (c *cluster) compareRates(ctx context.Context, w io.Writer, contestants []contestant, rounds int) (err error) {
	pod := netip.AddrPortFrom(netip.MustParseAddr(generations[0][0]), ratePort)
	bare, err := lab.New()
	if err != nil {
		return err
	}
	defer bare.Close()
	lanes := []*lane{{name: "no rules", lab: bare, to: pod}}
	for _, k := range withoutCounters(contestants) {
		r, _, err := c.enter(ctx, k)
		if err != nil {
			return fmt.Errorf("%s in %s mode: %w", k.name, k.mode, err)
		}
		defer func() { err = errors.Join(err, r.close()) }()
		lanes = append(lanes, &lane{name: k.name, mode: k.mode, lab: r.lab, to: netip.AddrPortFrom(rateIP, servicePort)})
	}
	for _, l := range lanes {
		server, err := l.lab.Host("pod1")
		if err != nil {
			return err
		}
		stop, err := connections.Serve(server, pod)
		if err != nil {
			return err
		}
		defer stop()
	}
	for _, clients := range clientCounts {
		for _, l := range lanes {
			l.opened = nil
		}
		for round := range rounds {
			for i := range lanes { // another one begins each round
				if err := lanes[(i+round)%len(lanes)].open(clients); err != nil {
					return err
				}
			}
		}
		if err := reportRates(w, fmt.Sprintf("New connections per second, %d at a time", clients), lanes); err != nil {
			return err
		}
	}
	return nil
}

// withoutCounters adds ours without counters for each Service.
func withoutCounters(contestants []contestant) (out []contestant) {
	for _, k := range contestants {
		out = append(out, k)
		if k.name == ours && k.mode == "nftables" {
			k.name, k.flags = "ours, --service-metrics=false", []string{"--service-metrics=false"}
			out = append(out, k)
		}
	}
	return out
}

// open opens connections from a pod for one round.
func (l *lane) open(clients int) error {
	node, err := l.lab.Host("node1")
	if err != nil {
		return err
	}
	if err := connections.Forget(node); err != nil {
		return err
	}
	client, err := l.lab.Host("pod3")
	if err != nil {
		return err
	}
	rates, errs := make([]float64, clients), make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { rates[i], errs[i] = connections.Open(client, l.to, rateTime) })
	}
	group.Wait()
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	l.opened = append(l.opened, sum)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: connect to %v: %w", l.name, l.to, err)
	}
	return nil
}

// reportRates prints the rates of all lanes, as shares of a node without rules, and of the other in the same mode.
func reportRates(w io.Writer, title string, lanes []*lane) error {
	fmt.Fprintf(w, "\n%s (%d rounds in turns; ratios with their 95 %% confidence intervals)\n\n", title, len(lanes[0].opened))
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "\tmode\tper second\tof no rules\tof the other")
	for _, l := range lanes {
		fmt.Fprintf(out, "%s\t%s\t%.0f", l.name, l.mode, median(l.opened))
		if l != lanes[0] {
			fmt.Fprintf(out, "\t%v", ratioOf(l.opened, lanes[0].opened))
		}
		at := slices.IndexFunc(lanes, func(o *lane) bool { return o.name == theOther && o.mode == l.mode })
		if at >= 0 && lanes[at] != l {
			fmt.Fprintf(out, "\t%v", ratioOf(l.opened, lanes[at].opened))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// interval is a ratio with the limits between which it is with a probability of 95 %.
type interval struct{ low, mean, high float64 }

func (i interval) String() string { return fmt.Sprintf("%.3f (%.3f to %.3f)", i.mean, i.low, i.high) }

// ratioOf returns the geometric mean of the ratios of each round.
func ratioOf(of, to []float64) interval {
	logs, n := make([]float64, len(of)), float64(len(of))
	mean := 0.0
	for i := range of {
		logs[i] = math.Log(of[i] / to[i])
		mean += logs[i] / n
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	const deviations = 1.96
	margin := deviations * math.Sqrt(squares/max(1, n-1)/n)
	return interval{math.Exp(mean - margin), math.Exp(mean), math.Exp(mean + margin)}
}
