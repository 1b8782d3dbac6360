//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/test/bench/connections"
	"sluice/test/lab"
)

const (
	rangeServices = 1000
	rangePorts    = 58 // of a range, which is many blocks
	rangeGap      = 60 // from the first port of one to that of the next
	rangeChanges  = 200
	// The requirements.
	rangeRatio = 0.97 // of the connections to a single port that can be opened without ranges
	rangeCost  = 2 * time.Millisecond
)

// ranged returns the ports of the i-th Service: with ranges a further one of its own.
func (w workload) ranged(i int, ports []model.ServicePort) []model.ServicePort {
	if w.Ranges == "" {
		return ports
	}
	first := uint16(2000 + rangeGap*i)
	ports[0].Ranges = []model.PortRange{{First: first, Last: first + rangePorts - 1}}
	return ports
}

// The places of ranges: each at the ClusterIP of its Service, or all of them also at one address.
const (
	rangesApart    = "apart"
	rangesTogether = "together"
)

// reportRanges measures what ranges of ports cost others: whether connections to a single port take longer to
// open, which is at an address with a range itself, and what one range more or less takes, in CPU time too, of
// which the machine's other load takes nothing away.
func reportRanges(ctx context.Context) error {
	fmt.Printf("A single port beside %d ranges (%d rounds of %v), and a range more or less (%d changes)\n\n", rangeServices, rateRounds, rateTime, rangeChanges)
	if err := lab.Sweep(); err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "ranges\tnew connections per second without\twith\tratio\tat least\tone change, p50\tp99\tCPU time\tat most")
	var missed error
	for _, where := range []string{rangesApart, rangesTogether} {
		rates, l, err := measureRanges(ctx, where)
		if err != nil {
			return err
		}
		r := ratio(rates[1], rates[0])
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.3f\t%.2f\t%s\t%s\t%s\t%v\n", where, median(rates[0]), median(rates[1]), r, rangeRatio, ms(l.P50), ms(l.P99), ms(l.Own), rangeCost)
		if r < rangeRatio || l.Own > rangeCost {
			missed = errors.Join(missed, fmt.Errorf("with ranges %s a requirement is not met", where))
		}
	}
	return errors.Join(out.Flush(), missed)
}

// measureRanges returns the rates of connections without ranges and with them, and how long changes of one take.
func measureRanges(ctx context.Context, where string) (rates [2][]float64, l latency, err error) {
	var routes [2]route
	var changing *served
	for i, ranges := range []string{"", where} {
		if routes[i].lab, err = lab.New(); err != nil {
			return rates, l, err
		}
		defer routes[i].lab.Close()
		server, err := serverOf(routes[i].lab)
		if err != nil {
			return rates, l, err
		}
		w := workload{Mode: "nftables", Services: rangeServices, Endpoints: 1, Target: server.Addr().String(), Ranges: ranges}
		routes[i].to = w.last()
		s, err := serve(ctx, routes[i].lab, "-ranging", w)
		if err != nil {
			return rates, l, err
		}
		defer s.stop()
		changing = s
		pod, err := routes[i].lab.Host("pod1")
		if err != nil {
			return rates, l, err
		}
		stop, err := connections.Serve(pod, server)
		if err != nil {
			return rates, l, err
		}
		defer stop()
	}
	for round := range rateRounds {
		for i := range routes {
			i = (i + round) % 2 // who comes first alternates, too
			rate, err := routes[i].open()
			if err != nil {
				return rates, l, err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	if _, err := fmt.Fprintln(changing.input, "change"); err != nil {
		return rates, l, err
	}
	err = json.NewDecoder(changing.output).Decode(&l)
	return rates, l, err
}

// changeRanges programs a workload, and when told to takes the range of a Service away and gives it back, many
// times.
func changeRanges(w workload, orders io.Reader, answers io.Writer) error {
	c := newCluster(w)
	events := c.events()
	p, err := start(w.Mode, events, func(c *plan.Config) { c.PortRanges = true })
	if err != nil {
		return err
	}
	defer p.stop()
	fmt.Fprintln(answers, loaded)
	if order := make([]byte, 1); w.Ranges != "" {
		if _, err := io.ReadFull(orders, order); err != nil {
			return nil //nolint:nilerr // it is told to end
		}
		first := slices.IndexFunc(events, func(e model.Event) bool { _, is := e.(model.SetService); return is })
		with := events[first].(model.SetService).Service
		without := *with
		without.Ports = slices.Clone(with.Ports)
		without.Ports[0].Ranges = nil
		l := p.each(rangeChanges, noLimit, func(i int) model.Event {
			return model.SetService{Service: []*model.Service{&without, with}[i%2]}
		})
		if err := json.NewEncoder(answers).Encode(l); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, orders)
	return err
}
