//go:build linux

// Command bench measures, in each mode of the proxy, the time from objects in
// memory to rules in the kernel, through engine, plan and dataplane, and how many
// new connections per second these rules allow. It also measures what it costs to see
// which endpoints answer, and to notice which do not.
//
// Each workload runs in a process and a network namespace of its own, so that
// its memory and its CPU time can be measured separately. Run it as root:
//
//	go run ./test/bench
//	go run ./test/bench -modes nftables -limit 5m
//
// These are wall times, and the machine may be busy: look at the ratios.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sluice/test/lab/scenario"
)

// workload is a cluster of that many Services with that many endpoints each, and
// the mode of the proxy.
type workload struct {
	Mode                string
	Services, Endpoints int
	Algorithm           string `json:",omitempty"` // of all Services; random by default
	Sticky              bool   `json:",omitempty"` // they have session affinity
	Nodes               int    `json:",omitempty"` // with direct return
	Sources             int    `json:",omitempty"` // source ranges of each, which has a load balancer IP
	Ranges              string `json:",omitempty"` // where ranges of ports are, of which each has one; "" for none
	// Target is the one endpoint of the last Service, if it matters.
	Target string `json:",omitempty"`
	// Writes is the interval at which a neighbour writes its own table, as an argument
	// of sleep(1); "" for never.
	Writes string `json:",omitempty"`
}

func (w workload) String() string {
	words := []string{fmt.Sprintf("%d×%d", w.Services, w.Endpoints)}
	if w.Algorithm != "" {
		words = append(words, w.Algorithm)
	}
	if w.Sticky {
		words = append(words, "sticky")
	}
	if w.Sources > 0 {
		words = append(words, fmt.Sprintf("%d source ranges", w.Sources))
	}
	return strings.Join(words, " ")
}

// options are the flags.
type options struct {
	worker, load string
	modes        string
	changes      int
	limit        time.Duration
	profile      string
	profileOf    string
	rates        bool
	neighbours   bool
	neighbour    string
	evidence     bool
	ejection     bool
	direct       bool
	directly     string
	sensor       string
	ranges       bool
	ranging      string
	churn        time.Duration
	churning     string
}

func main() {
	var o options
	flag.StringVar(&o.worker, "worker", "", "measure one workload (JSON) in this process and network namespace")
	flag.StringVar(&o.load, "load", "", "program one workload (JSON) in this network namespace, and serve until the input ends")
	flag.StringVar(&o.modes, "modes", "", "modes to measure, separated by commas; all that the kernel supports if empty")
	flag.IntVar(&o.changes, "changes", 200, "changes of each sort to measure")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "longest time that a workload may take")
	flag.StringVar(&o.profile, "profile", "", "with -worker or -directly: write a CPU profile of the cold start to this file")
	flag.StringVar(&o.profileOf, "profile-changes", "", "with -worker: write a CPU profile of the changes to this file")
	flag.BoolVar(&o.neighbours, "neighbours", false, "measure nothing but what a neighbour's writes cost")
	flag.StringVar(&o.neighbour, "neighbour", "", "measure one workload (JSON) beside a neighbour in this process and network namespace")
	flag.BoolVar(&o.rates, "rates", false, "measure nothing but the rates of new connections and of streams")
	flag.BoolVar(&o.evidence, "evidence", false, "measure nothing but what it costs to see which endpoints answer")
	flag.BoolVar(&o.ejection, "ejection", false, "measure nothing but what it costs to notice which endpoints do not answer")
	flag.BoolVar(&o.direct, "direct", false, "measure nothing but what direct return brings")
	flag.StringVar(&o.directly, "directly", "", "measure one workload (JSON) with direct return in this process and network namespace")
	flag.StringVar(&o.sensor, "sensor", "", "program one workload (JSON) in this network namespace, and look at its connections when told to")
	flag.BoolVar(&o.ranges, "ranges", false, "measure nothing but what ranges of ports cost others")
	flag.StringVar(&o.ranging, "ranging", "", "program one workload (JSON) in this network namespace, and change a range when told to")
	flag.DurationVar(&o.churn, "churn", 0, "measure nothing but constant change, for that long")
	flag.StringVar(&o.churning, "churning", "", "measure constant change of one workload (JSON) in this process and network namespace")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	for text, measure := range map[string]func(workload) (any, error){
		o.worker:    func(w workload) (any, error) { return measure(w, o.changes, o.profile, o.profileOf) },
		o.neighbour: func(w workload) (any, error) { return measureNeighbour(w) },
		o.directly:  func(w workload) (any, error) { return measureDirect(w, o.profile) },
		o.churning:  func(w workload) (any, error) { return measureChurn(w, o.churn) },
	} {
		if text != "" {
			return encode(text, measure)
		}
	}
	for text, serve := range map[string]func(workload, io.Reader, io.Writer) error{o.sensor: watch, o.ranging: changeRanges} {
		if text != "" {
			w, err := parseWorkload(text)
			if err != nil {
				return err
			}
			return serve(w, os.Stdin, os.Stdout)
		}
	}
	if o.load != "" {
		w, err := parseWorkload(o.load)
		if err != nil {
			return err
		}
		p, err := start(w.Mode, newCluster(w).events())
		if err != nil {
			return err
		}
		defer p.stop()
		fmt.Println(loaded)
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	modes := scenario.SupportedModeNames(context.Background())
	if o.modes != "" {
		modes = strings.Split(o.modes, ",")
	}
	if o.churn > 0 {
		return reportChurn(o.churn, &scores{})
	}
	if o.evidence {
		return reportEvidence(context.Background())
	}
	if o.ejection {
		return reportEjection(context.Background())
	}
	if o.direct {
		return reportDirect(context.Background())
	}
	if o.neighbours {
		return reportNeighbours(o.limit)
	}
	if o.ranges {
		return reportRanges(context.Background())
	}
	s := &scores{}
	if !o.rates {
		for _, mode := range modes {
			if err := report(mode, o, s); err != nil {
				return err
			}
		}
	}
	if err := reportRates(context.Background(), modes); err != nil {
		return err
	}
	if err := reportStreams(context.Background(), modes); err != nil || o.rates {
		return err
	}
	if err := reportNeighbours(o.limit); err != nil {
		return err
	}
	if err := reportChurn(10*time.Second, s); err != nil {
		return err
	}
	if err := reportRanges(context.Background()); err != nil {
		return err
	}
	if err := reportEvidence(context.Background()); err != nil {
		return err
	}
	if err := reportEjection(context.Background()); err != nil {
		return err
	}
	if err := reportDirect(context.Background()); err != nil {
		return err
	}
	return s.report()
}

// encode measures one workload and prints the result in JSON.
func encode(text string, measure func(workload) (any, error)) error {
	w, err := parseWorkload(text)
	if err != nil {
		return err
	}
	f, err := measure(w)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

func parseWorkload(text string) (workload, error) {
	w := workload{Mode: "nftables"}
	err := json.Unmarshal([]byte(text), &w)
	return w, err
}
