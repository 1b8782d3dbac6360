//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/test/bench/connections"
	"sluice/test/lab"
)

const (
	rateServices = 10_000
	rateRounds   = 100
	rateTime     = 50 * time.Millisecond // of one round
)

// route is a path to the server.
type route struct {
	lab *lab.Lab
	to  netip.AddrPort
}

// trackOnly is the minimal ruleset that makes the kernel track connections.
const trackOnly = "table inet track { chain forward { type filter hook forward priority 0; ct state new accept; }; }"

// reportRates measures how many TCP connections per second can be opened, from pod
// to pod across the node: on a node without rules, on one that only tracks
// connections, past the rules of many Services, and through the last of these
// Services. Rounds alternate, and ratios are of consecutive rounds, so that other
// load on the machine matters little.
func reportRates(ctx context.Context, modes []string) error {
	fmt.Printf("New TCP connections per second, with %d Services (medians of %d rounds)\n\n", rateServices, rateRounds)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "mode\tno rules\ttracked only\tratio\tno Service's\tratio\tthe last Service\tratio")
	if err := lab.Sweep(); err != nil {
		return err
	}
	for _, mode := range modes {
		r, err := measureRates(ctx, mode)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		fmt.Fprintf(out, "%s\t%.0f", mode, median(r[0]))
		for _, rates := range r[1:] {
			fmt.Fprintf(out, "\t%.0f\t%.2f", median(rates), ratio(rates, r[0]))
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// measureRates returns connections per second for each round of the four routes.
func measureRates(ctx context.Context, mode string) (rates [4][]float64, err error) {
	var labs [3]*lab.Lab
	for i := range labs {
		if labs[i], err = lab.New(); err != nil {
			return rates, err
		}
		defer labs[i].Close()
	}
	bare, tracking, programmed := labs[0], labs[1], labs[2]
	if err := onNode(ctx, tracking, lab.Command{Args: []string{"nft", trackOnly}}); err != nil {
		return rates, err
	}
	server, err := serverOf(programmed)
	if err != nil {
		return rates, err
	}
	w := workload{Mode: mode, Services: rateServices, Endpoints: 1, Target: server.Addr().String()}
	unload, err := load(ctx, programmed, w)
	if err != nil {
		return rates, err
	}
	defer unload()
	for _, l := range labs {
		pod, err := l.Host("pod1")
		if err != nil {
			return rates, err
		}
		stop, err := connections.Serve(pod, server)
		if err != nil {
			return rates, err
		}
		defer stop()
	}
	routes := [4]route{{bare, server}, {tracking, server}, {programmed, server}, {programmed, w.last()}}
	for range rateRounds {
		for i, r := range routes {
			rate, err := r.open()
			if err != nil {
				return rates, err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	return rates, nil
}

// open opens connections from the last pod for one round.
func (r route) open() (float64, error) {
	node, err := r.lab.Host("node1")
	if err != nil {
		return 0, err
	}
	if err := connections.Forget(node); err != nil {
		return 0, fmt.Errorf("clear the tracking table: %w", err)
	}
	return r.openMore(rateTime)
}

// openMore opens connections from the last pod for a time, beside those that are known.
func (r route) openMore(duration time.Duration) (float64, error) {
	pod, err := r.lab.Host("pod3")
	if err != nil {
		return 0, err
	}
	rate, err := connections.Open(pod, r.to, duration)
	if err != nil {
		err = fmt.Errorf("connect to %v: %w", r.to, err)
	}
	return rate, err
}

func serverOf(l *lab.Lab) (netip.AddrPort, error) {
	pod, err := l.Host("pod1")
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(pod.Addrs[0], endpointPort), nil
}

// loaded is what a process prints when it has programmed its workload.
const loaded = "loaded"

// load programs a workload on the node of a lab, in a separate process, which serves
// until unload is called.
func load(ctx context.Context, l *lab.Lab, w workload) (unload func(), err error) {
	s, err := serve(ctx, l, "-load", w)
	if err != nil {
		return nil, err
	}
	return s.stop, nil
}

// served is a process that programmed a workload.
type served struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
}

// serve starts a process that a flag of this program describes on the node of a lab.
func serve(ctx context.Context, l *lab.Lab, flag string, w workload) (*served, error) {
	arg, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	node, err := l.Host("node1")
	if err != nil {
		return nil, err
	}
	s := &served{cmd: exec.CommandContext(ctx, "/proc/self/exe", flag, string(arg))}
	s.cmd.Stderr = os.Stderr
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.output = bufio.NewReader(output)
	if err := node.Do(s.cmd.Start); err != nil {
		return nil, err
	}
	if line, _ := s.output.ReadString('\n'); strings.TrimSpace(line) != loaded {
		s.stop()
		return nil, fmt.Errorf("the workload %v is not programmed", w)
	}
	return s, nil
}

func (s *served) stop() {
	_ = s.input.Close()
	_ = s.cmd.Wait() // it was told to end
}

func onNode(ctx context.Context, l *lab.Lab, c lab.Command) error {
	node, err := l.Host("node1")
	if err == nil {
		_, err = node.Run(ctx, c)
	}
	return err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// ratio is the median of the ratios of each round.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}
