//go:build linux

// Command conntrack measures the cost of a huge connection tracking table: two
// proxies make the same changes in turn, one of them on a node whose table is full
// of foreign UDP flows, with a few that lead to an endpoint that is removed. Run it
// as root:
//
//	go run ./test/bench/conntrack
//
// The kernel has one limit for the tables of all network namespaces. It is raised
// during the measurement if that is allowed; otherwise the table is as large as the
// limit.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	entries, stale, rounds int
}

func main() {
	var o options
	worker := flag.Bool("worker", false, "run a proxy in this process and network namespace, and take orders")
	flag.IntVar(&o.entries, "entries", 1_000_000, "other people's entries in the table")
	flag.IntVar(&o.stale, "stale", 10_000, "entries that lead to an endpoint that leaves")
	flag.IntVar(&o.rounds, "rounds", 300, "changes of each sort to measure")
	flag.Parse()
	var err error
	if *worker {
		err = work(os.Stdin, os.Stdout)
	} else {
		err = report(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conntrack:", err)
		os.Exit(1)
	}
}

const limitFile = "/proc/sys/net/netfilter/nf_conntrack_max"

// makeRoom raises the limit if needed. It returns the room for entries besides the
// stale ones, and a function that restores the limit.
func makeRoom(o options) (room int, restore func(), err error) {
	restore = func() {}
	text, err := os.ReadFile(limitFile)
	if err != nil {
		return 0, restore, err
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || o.entries+o.stale <= most {
		return o.entries, restore, err
	}
	const spare = 10_000 // for what else goes on
	if err := os.WriteFile(limitFile, fmt.Append(nil, o.entries+o.stale+spare), 0); err != nil {
		room = most - o.stale
		fmt.Printf("%v: measuring with %d entries instead of %d.\n\n", err, room, o.entries)
		return room, restore, nil
	}
	return o.entries, func() {
		if err := os.WriteFile(limitFile, text, 0); err != nil {
			fmt.Fprintln(os.Stderr, "conntrack: put the limit back:", err)
		}
	}, nil
}

func report(o options) error {
	entries, restore, err := makeRoom(o)
	if err != nil {
		return err
	}
	defer restore()
	empty, err := startProxy()
	if err != nil {
		return err
	}
	defer empty.stop()
	full, err := startProxy()
	if err != nil {
		return err
	}
	defer full.stop()

	begin := time.Now()
	if err := full.fill(entries, o.stale); err != nil {
		return err
	}
	filled := time.Since(begin)
	before, err := full.do("count")
	if err != nil {
		return err
	}
	quiet, err := compare(empty, full, "add", o.rounds)
	if err != nil {
		return err
	}
	if _, err := full.do("leave"); err != nil {
		return err
	}
	busy, err := compare(empty, full, "replace", o.rounds)
	if err != nil {
		return err
	}
	swept, err := full.do("swept")
	if err != nil {
		return err
	}

	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintf(out, "commit, median of %d\tempty table\t%d entries\tratio\n", o.rounds, before.Entries)
	fmt.Fprintf(out, "endpoint added\t%v\n", quiet)
	fmt.Fprintf(out, "endpoint replaced, while the table is swept\t%v\n\n", busy)
	fmt.Fprintln(out, "entries\tstale\tseen\tdeleted\tleft\tclean after\tmemory more\tfilled in")
	fmt.Fprintf(out, "%d\t%d\t%d\t%d\t%d\t%s\t%.1f MB\t%s\n", before.Entries, o.stale, swept.Seen, swept.Deleted, swept.Entries,
		ms(swept.Took), float64(swept.Memory)/(1<<20), ms(filled))
	if err := out.Flush(); err != nil {
		return err
	}
	if swept.Deleted != o.stale || swept.Entries != entries {
		return fmt.Errorf("deleted %d entries of which %d were stale, and left %d of %d", swept.Deleted, o.stale, swept.Entries, entries)
	}
	return nil
}

// comparison is the same work on two nodes.
type comparison struct{ empty, full time.Duration }

func (c comparison) String() string {
	return fmt.Sprintf("%s\t%s\t%.2f", ms(c.empty), ms(c.full), float64(c.full)/float64(c.empty))
}

// compare makes changes with both proxies in turn, and returns the medians.
func compare(empty, full *proxy, change string, rounds int) (comparison, error) {
	took := [2][]time.Duration{}
	for range rounds {
		for i, p := range []*proxy{empty, full} {
			a, err := p.do(change)
			if err != nil {
				return comparison{}, err
			}
			took[i] = append(took[i], a.Took)
		}
	}
	return comparison{median(took[0]), median(took[1])}, nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
