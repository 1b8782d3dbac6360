//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack/conntracktest"
	"sluice/internal/observe/ejection"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/history"
	"sluice/internal/plan"
	"sluice/test/bench/connections"
	"sluice/test/lab"
)

const (
	evidenceServices    = 5000
	evidenceConnections = 100_000
	evidenceRounds      = 120
	evidenceTime        = 250 * time.Millisecond // of one round
	evidenceRest        = 100 * time.Second      // without new connections
	// The requirements.
	evidenceCost  = 0.01 // of a core
	evidenceRatio = 0.98 // of the connections that can be opened without it
)

// silences are the numbers of endpoints that do not answer. If they are few, connections to
// them are asked for one by one; else all connections are read.
var silences = []int{0, 1, 20}

// reportEvidence measures what it costs to see which endpoints answer on a node with many
// connections: CPU time of the proxy while no connections are opened, because the kernel would
// charge it for packets of others, and whether connections take longer to open. There are two
// nodes, one with a proxy that does not look. Rounds alternate between them. The connections are
// those of the other one: all nodes of a machine share one table, and look-ups in it take the
// same time for both.
func reportEvidence(ctx context.Context) error {
	fmt.Printf("Seeing which endpoints answer, with %d Services and %d connections (%d rounds of %v)\n\n",
		evidenceServices, evidenceConnections, evidenceRounds, evidenceTime)
	if err := lab.Sweep(); err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "silent endpoints\tCPU of a look\tlooks every\tshare of a core\tat most\tnew connections per second without\twith\tratio\tof all rounds\tat least")
	var missed []error
	for _, silent := range silences {
		f, err := measureSight(ctx, evidenceSight, evidenceConnections, silent)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d\t%s\t%v\t%.2f %%\t%.0f %%\t%.0f\t%.0f\t%.3f\t%.3f\t%.2f\n", silent, ms(f.last.Cost), f.last.Interval.Round(10*time.Millisecond),
			100*f.share, 100*evidenceCost, median(f.rates[0]), median(f.rates[1]), ratio(f.rates[1], f.rates[0]), mean(f.rates[1])/mean(f.rates[0]), evidenceRatio)
		missed = append(missed, f.missed(silent))
	}
	return errors.Join(append([]error{out.Flush()}, missed...)...)
}

// missed returns which requirements are not met, nil if all are.
func (f *seeing) missed(silent int) (err error) {
	if f.share > evidenceCost {
		err = fmt.Errorf("beside %d silent endpoints it takes %.2f %% of a core, more than %.0f %%", silent, 100*f.share, 100*evidenceCost)
	}
	if r := ratio(f.rates[1], f.rates[0]); r < evidenceRatio {
		err = errors.Join(err, fmt.Errorf("beside %d silent endpoints %.3f of the connections can be opened, fewer than %.2f", silent, r, evidenceRatio))
	}
	return err
}

// seeing is what a node without evidence and one with it show.
type seeing struct {
	rates [2][]float64 // connections per second
	share float64      // of a core, that evidence takes
	last  watched
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// The orders that let a proxy see: which endpoints answer, by connection tracking, and which to leave out.
const (
	evidenceSight = "on"
	ejectionSight = "eject"
)

// measureSight compares a node that sees with one that does not, beside that many connections.
func measureSight(ctx context.Context, order string, count, silent int) (f seeing, err error) {
	var routes [2]route
	var proxies [2]*served
	for i := range routes {
		if routes[i].lab, err = lab.New(); err != nil {
			return f, err
		}
		defer routes[i].lab.Close()
		server, err := serverOf(routes[i].lab)
		if err != nil {
			return f, err
		}
		w := workload{Mode: "nftables", Services: evidenceServices, Endpoints: 1, Target: server.Addr().String()}
		routes[i].to = w.last()
		if proxies[i], err = serve(ctx, routes[i].lab, "-sensor", w); err != nil {
			return f, err
		}
		defer proxies[i].stop()
		pod, err := routes[i].lab.Host("pod1")
		if err != nil {
			return f, err
		}
		stop, err := connections.Serve(pod, server)
		if err != nil {
			return f, err
		}
		defer stop()
	}
	if err := connect(routes[1].lab, count, silent); err != nil {
		return f, err
	}
	for !f.last.Looked {
		if f.last, err = proxies[1].do(order); err != nil {
			return f, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	if f.share, err = rest(proxies); err != nil {
		return f, err
	}
	if f.last, err = proxies[1].do(order); err != nil {
		return f, err
	}
	for round := range evidenceRounds {
		for i := range routes {
			i = (i + round) % 2 // who comes first alternates, too
			rate, err := routes[i].openMore(evidenceTime)
			if err != nil {
				return f, err
			}
			f.rates[i] = append(f.rates[i], rate)
		}
	}
	return f, nil
}

// rest returns how much more of a core the second proxy takes than the first.
func rest(proxies [2]*served) (float64, error) {
	var shares [2]float64
	var before [2]watched
	began := time.Now()
	for i, p := range proxies {
		a, err := p.do("same")
		if err != nil {
			return 0, err
		}
		before[i] = a
	}
	time.Sleep(evidenceRest)
	for i, p := range proxies {
		a, err := p.do("same")
		if err != nil {
			return 0, err
		}
		shares[i] = (a.CPU - before[i].CPU).Seconds() / time.Since(began).Seconds()
	}
	return shares[1] - shares[0], nil
}

// connect fills the connection tracking table of the node.
func connect(l *lab.Lab, count, silent int) error {
	node, err := l.Host("node1")
	if err != nil {
		return err
	}
	entries := func(yield func(conntracktest.Entry) bool) {
		for i := range uint32(count) {
			service := i % (evidenceServices - 1)
			e := conntracktest.Entry{
				From:     netip.AddrPortFrom(ipv4(firstClient+i/evidenceServices), uint16(1024+i%evidenceServices)),
				To:       netip.AddrPortFrom(ipv4(firstClusterIP+service), 80),
				By:       netip.AddrPortFrom(ipv4(firstPodIP+service), endpointPort),
				Protocol: model.TCP, TCPState: ctnetlink.TCPEstablished,
			}
			if int(service) < silent {
				e.TCPState = 0
			}
			if !yield(e) {
				return
			}
		}
	}
	return node.Do(func() error { return conntracktest.Fill(0, entries) })
}

// firstClient is the first of some clients outside.
const firstClient = 0x64400001 // 100.64.0.1

// watched is what a process that looks at connections reports.
type watched struct {
	CPU            time.Duration // of the process, so far
	Looked         bool
	Interval, Cost time.Duration // of looks
	Err            string
}

// do sends an order, and returns the answer.
func (s *served) do(order string) (a watched, err error) {
	if _, err := fmt.Fprintln(s.input, order); err != nil {
		return a, err
	}
	line, err := s.output.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Err != "" {
		return a, fmt.Errorf("looking at connections: %s", a.Err)
	}
	return a, nil
}

// watch programs a workload, and looks at its connections from an order on.
func watch(w workload, orders io.Reader, answers io.Writer) error {
	p, err := start(w.Mode, newCluster(w).events(), func(c *plan.Config) { c.Eject = true })
	if err != nil {
		return err
	}
	defer p.stop()
	fmt.Fprintln(answers, loaded)
	past := history.New(history.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var sensor *evidence.Sensor
	var ejector *ejection.Ejector
	for in := bufio.NewScanner(orders); in.Scan(); {
		switch {
		case in.Text() == evidenceSight && sensor == nil:
			sensor = evidence.New(evidence.Options{Logger: logr.Discard(), Engine: p.engine, OnLook: func() { past.Answers(sensor.All()) }})
			running.Go(func() { _ = sensor.Run(ctx) })
		case in.Text() == ejectionSight && ejector == nil:
			ejector = ejection.New(ejection.Options{Logger: logr.Discard(), Witness: p.dataplane.(dataplane.Witness), Sink: p.engine})
			p.engine.Inspect(func(v engine.View) {
				ejector.Committed(&engine.Commit{Change: &plan.Change{Set: slices.Collect(maps.Values(v.Desired.Frontends))}})
			})
			running.Go(func() { _ = ejector.Run(ctx) })
			time.Sleep(time.Second)
		}
		a := watched{CPU: totalTime(syscall.RUSAGE_SELF), Looked: ejector != nil}
		var err error
		if sensor != nil {
			last := sensor.Summary()
			a.Interval, a.Cost, a.Looked, err = last.Interval, last.Cost, last.Interval > 0, last.Err
		}
		if ejector != nil {
			err = ejector.Err()
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := json.NewEncoder(answers).Encode(a); err != nil {
			return err
		}
	}
	return nil
}
