//go:build linux

// Command scrape measures the cost of reading /metrics in a large cluster: CPU
// time, retained memory, and the delay of concurrent changes.
//
// It measures the whole path, from the counters of the kernel to the compressed
// answer, in its own network namespace. Run it as root:
//
//	go run ./test/bench/scrape
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	worker            bool
	services, scrapes int
	changes           time.Duration
	profile           string
}

func main() {
	var o options
	flag.BoolVar(&o.worker, "worker", false, "measure in this process and network namespace")
	flag.IntVar(&o.services, "services", 10_000, "Services of two endpoints each")
	flag.IntVar(&o.scrapes, "scrapes", 100, "scrapes to measure")
	flag.DurationVar(&o.changes, "changes", 10*time.Second, "how long changes are measured")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the scrapes to this file")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "scrape:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.worker {
		f, err := measure(o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	c := exec.Command("/proc/self/exe", append([]string{"-worker"}, os.Args[1:]...)...)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("measure in a network namespace (that needs root): %w", err)
	}
	var f figures
	if err := json.Unmarshal(out, &f); err != nil {
		return err
	}
	return f.print(o)
}

func (f figures) print(o options) error {
	fmt.Printf("Scraping /metrics with %d Services, nftables\n\n", o.services)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintf(out, "series\t%d\n", f.Series)
	fmt.Fprintf(out, "answer, compressed\t%d kB, %d kB\n", f.Bytes>>10, f.Compressed>>10)
	fmt.Fprintf(out, "CPU time of a scrape, text\t%s\n", ms(f.CPU))
	fmt.Fprintf(out, "CPU time of a scrape, protobuf\t%s\n", ms(f.Protobuf))
	fmt.Fprintf(out, "heap before, after %d scrapes\t%d kB, %d kB\n", o.scrapes, f.HeapBefore>>10, f.HeapAfter>>10)
	for _, l := range f.Changes {
		fmt.Fprintf(out, "change, %s, p50 / p99\t%s / %s (of %d)\n", l.While, ms(l.P50), ms(l.P99), l.Count)
	}
	fmt.Fprintln(out)
	return out.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
