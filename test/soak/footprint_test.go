//go:build linux

package soak

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// footprint is what a proxy takes of the machine.
type footprint struct{ files, goroutines, heap int }

func (f footprint) String() string {
	return fmt.Sprintf("%d files, %d goroutines, %.1f MiB", f.files, f.goroutines, float64(f.heap)/(1<<20))
}

// within reports whether a proxy takes little more than another one that has fewer connections: what
// garbage there is depends on when it was last collected.
func (f footprint) within(o footprint, connections int) bool {
	return f.files <= o.files+connections && f.goroutines <= o.goroutines+connections && f.heap <= 2*o.heap+4<<20
}

// tookLimit is more than the time between two collections of garbage that nothing else calls for.
const tookLimit = 150 * time.Second

var footprintMetrics = regexp.MustCompile(`(?m)^(process_open_fds|go_goroutines|go_memstats_heap_alloc_bytes) (\S+)$`)

func (n *node) footprint() (f footprint, err error) {
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	page, err := n.lab.Get(at, "/metrics")
	if err != nil || page.Status != http.StatusOK {
		return f, fmt.Errorf("metrics are answered by %d: %w", page.Status, err)
	}
	found := footprintMetrics.FindAllSubmatch(page.Body, -1)
	if len(found) != 3 {
		return f, fmt.Errorf("there are %d of three metrics", len(found))
	}
	for _, m := range found {
		value, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return f, err
		}
		switch string(m[1]) {
		case "process_open_fds":
			f.files = int(value)
		case "go_goroutines":
			f.goroutines = int(value)
		default:
			f.heap = int(value)
		}
	}
	return f, nil
}

// needsNoMoreThan waits until the proxy takes no more of the machine than a fresh one with the same
// objects: whatever happened before left nothing behind.
func (n *node) needsNoMoreThan(fresh *node) error {
	want, err := fresh.footprint()
	if err != nil {
		return err
	}
	const connections = 50
	return testkit.Poll(tookLimit, func() error {
		have, err := n.footprint()
		if err == nil && !have.within(want, connections) {
			err = fmt.Errorf("the proxy has %v, a fresh one %v", have, want)
		}
		return err
	})
}
