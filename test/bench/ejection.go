//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"sluice/test/lab"
)

const (
	// What it costs must not depend on how many connections the node tracks: few, or as many as this, or three
	// quarters of what the kernel allows.
	fewConnections, manyConnections = 1000, 1_000_000

	conntrackMax = "/proc/sys/net/netfilter/nf_conntrack_max"

	ejectionRatio = 0.97 // of the connections that can be opened without it
)

// mayTrack returns how many connections the kernel tracks at most, in all network namespaces.
func mayTrack() (int, error) {
	text, err := os.ReadFile(conntrackMax)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// allowTracking raises that number for as long as is measured, if the kernel lets this process.
func allowTracking(connections int) (restore func()) {
	before, err := mayTrack()
	set := func(n int) error { return os.WriteFile(conntrackMax, []byte(strconv.Itoa(n)), 0) }
	if err != nil || before >= connections || set(connections) != nil {
		return func() {}
	}
	return func() { _ = set(before) }
}

// reportEjection measures what it costs to notice which endpoints do not answer: CPU time of the proxy at rest, and
// whether connections take longer to open. There are two nodes, as in reportEvidence.
func reportEjection(ctx context.Context) error {
	fmt.Printf("Noticing which endpoints do not answer, of %d Services (%d rounds of %v)\n\n", evidenceServices, evidenceRounds, evidenceTime)
	if err := lab.Sweep(); err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "tracked connections\tshare of a core\tnew connections per second without\twith\tratio\tof all rounds\tat least")
	restore := allowTracking(manyConnections / 3 * 4)
	defer restore()
	most, err := mayTrack()
	if err != nil {
		return err
	}
	var slow error
	for _, count := range []int{fewConnections, min(manyConnections, most/4*3)} {
		f, err := measureSight(ctx, ejectionSight, count, 0)
		if err != nil {
			return err
		}
		if r := ratio(f.rates[1], f.rates[0]); r < ejectionRatio {
			slow = errors.Join(slow, fmt.Errorf("with %d tracked connections, %.3f of the connections are opened that are without it, less than %.2f (see whether the machine is busy)", count, r, ejectionRatio))
		}
		fmt.Fprintf(out, "%d\t%.2f %%\t%.0f\t%.0f\t%.3f\t%.3f\t%.2f\n", count, 100*f.share,
			median(f.rates[0]), median(f.rates[1]), ratio(f.rates[1], f.rates[0]), mean(f.rates[1])/mean(f.rates[0]), ejectionRatio)
	}
	return errors.Join(out.Flush(), slow)
}
