// Command bench measures how long the way from objects in memory to rules in
// the kernel takes, through the engine, the plan and the nftables dataplane.
//
// Each workload runs in a process and a network namespace of its own, so that
// its memory and its CPU time can be told apart. Run it as root:
//
//	go run ./test/bench
//
// These are wall times of a machine that may have other things to do: look at
// the ratios.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"text/tabwriter"
	"time"
)

// workload is a cluster of so many Services with so many endpoints each.
type workload struct{ Services, Endpoints int }

func (w workload) String() string { return fmt.Sprintf("%d×%d", w.Services, w.Endpoints) }

var workloads = []workload{{1_000, 10}, {10_000, 2}, {5_000, 50}, {45_000, 1}, {1, 100_000}}

// scaling are the pairs for time(2N)/time(N).
var scaling = [][2]workload{
	{{5_000, 2}, {10_000, 2}},
	{{10_000, 2}, {20_000, 2}},
	{{2_500, 50}, {5_000, 50}},
	{{1, 50_000}, {1, 100_000}},
}

func main() {
	worker := flag.String("worker", "", "measure one workload (JSON) in this process and network namespace")
	changes := flag.Int("changes", 200, "changes of each sort to measure")
	profile := flag.String("profile", "", "with -worker: write a CPU profile of the cold start to this file")
	flag.Parse()
	if err := run(*worker, *changes, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(worker string, changes int, profile string) error {
	if worker == "" {
		return report(changes)
	}
	var w workload
	if err := json.Unmarshal([]byte(worker), &w); err != nil {
		return err
	}
	m, err := measure(w, changes, profile)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// figures are what one workload measured.
type figures struct {
	Cold                 time.Duration
	Add, Remove, Replace latency
	Restart              time.Duration
	RestartTransactions  int
	User, System         time.Duration // until the cold start was committed
	Peak                 int64         // bytes resident, of the whole process, at that time
}

type latency struct{ P50, P99 time.Duration }

func (l latency) String() string {
	return fmt.Sprintf("%s / %s", ms(l.P50), ms(l.P99))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// isolated measures a workload in a child process.
func isolated(w workload, changes int) (figures, error) {
	var f figures
	arg, err := json.Marshal(w)
	if err != nil {
		return f, err
	}
	var out bytes.Buffer
	c := exec.Command("/proc/self/exe", "-worker", string(arg), "-changes", fmt.Sprint(changes))
	c.Stdout, c.Stderr = &out, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := c.Run(); err != nil {
		return f, fmt.Errorf("workload %s: %w", w, err)
	}
	return f, json.Unmarshal(out.Bytes(), &f)
}

func report(changes int) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "Services×endpoints\tcold start\tuser\tsystem\tpeak memory\tadd p50 / p99\tremove p50 / p99\treplace p50 / p99\trestart\twritten")
	for _, w := range workloads {
		f, err := isolated(w, changes)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%d MB\t%s\t%s\t%s\t%s\t%d\n", w, ms(f.Cold), ms(f.User), ms(f.System),
			f.Peak>>20, f.Add, f.Remove, f.Replace, ms(f.Restart), f.RestartTransactions)
	}
	out.Flush()
	fmt.Println()
	fmt.Fprintln(out, "cold start\tN\t2N\ttime(2N)/time(N)")
	for _, pair := range scaling {
		var cold [2]time.Duration
		for i, w := range pair {
			var err error
			if cold[i], err = bestCold(w); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "%s, %s\t%s\t%s\t%.2f\n", pair[0], pair[1], ms(cold[0]), ms(cold[1]), float64(cold[1])/float64(cold[0]))
	}
	return out.Flush()
}

// bestCold is the best of a few cold starts: the least disturbed one.
func bestCold(w workload) (time.Duration, error) {
	best := time.Duration(1<<63 - 1)
	for range 3 {
		f, err := isolated(w, 0)
		if err != nil {
			return 0, err
		}
		best = min(best, f.Cold)
	}
	return best, nil
}
