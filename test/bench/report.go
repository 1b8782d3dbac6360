//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"
)

// sizes are the clusters that are measured in each mode.
var sizes = []workload{
	{Services: 1_000, Endpoints: 10},
	{Services: 10_000, Endpoints: 2},
	{Services: 5_000, Endpoints: 50},
	{Services: 45_000, Endpoints: 1},
	{Services: 1, Endpoints: 100_000},
	{Services: 100, Endpoints: 50, Algorithm: "maglev"},
}

// scaling are the pairs for time(2N)/time(N).
var scaling = [][2]workload{
	{{Services: 5_000, Endpoints: 2}, {Services: 10_000, Endpoints: 2}},
	{{Services: 10_000, Endpoints: 2}, {Services: 20_000, Endpoints: 2}},
	{{Services: 50_000, Endpoints: 1}, {Services: 100_000, Endpoints: 1}},
	{{Services: 2_500, Endpoints: 50}, {Services: 5_000, Endpoints: 50}},
	{{Services: 1, Endpoints: 50_000}, {Services: 1, Endpoints: 100_000}},
	{{Services: 10_000, Endpoints: 2, Sticky: true}, {Services: 20_000, Endpoints: 2, Sticky: true}},
	{{Services: 1, Endpoints: 2, Sources: 10_000}, {Services: 1, Endpoints: 2, Sources: 20_000}},
	{{Services: 50, Endpoints: 50, Algorithm: "maglev"}, {Services: 100, Endpoints: 50, Algorithm: "maglev"}},
}

// Bars for what twice as much may take.
const (
	timeBar   = 2.3
	memoryBar = 2.1
)

// errLimit is the error of a workload that takes too long.
type errLimit time.Duration

func (e errLimit) Error() string {
	return fmt.Sprintf("did not end in %.0f s", time.Duration(e).Seconds())
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// isolated measures a workload in a child process.
func isolated(w workload, changes int, limit time.Duration) (f figures, err error) {
	err = inChild(w, limit, &f, "-changes", fmt.Sprint(changes), "-worker")
	return f, err
}

// inChild runs a workload, which is the last argument, in a child process, and
// decodes the result into f.
func inChild(w workload, limit time.Duration, f any, args ...string) error {
	arg, err := json.Marshal(w)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out bytes.Buffer
	c := exec.CommandContext(ctx, "/proc/self/exe", append(args, string(arg))...)
	c.Stdout, c.Stderr = &out, os.Stderr
	// The lock of iptables-legacy is shared by the machine; this is another one.
	lock := filepath.Join(os.TempDir(), fmt.Sprintf("sluice-bench-%d.lock", os.Getpid()))
	defer os.Remove(lock)
	c.Env = append(c.Environ(), "XTABLES_LOCKFILE="+lock)
	// Commands that a worker runs must end with it.
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	err = c.Run()
	if ctx.Err() != nil {
		return errLimit(limit)
	}
	if err != nil {
		return fmt.Errorf("%s, workload %s: %w", w.Mode, w, err)
	}
	return json.Unmarshal(out.Bytes(), f)
}

// report measures one mode.
func report(mode string, o options, s *scores) error {
	fmt.Printf("Mode %s\n\n", mode)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "Services×endpoints\tcold start\tuser\tsystem\tchildren\tpeak memory\tadd p50 / p99\tremove p50 / p99\treplace p50 / p99\tCPU of an add, own / children\trestart\twritten\tcompared after\tadd meanwhile p50 / p99")
	for _, w := range sizes {
		w.Mode = mode
		if !w.possible() {
			continue
		}
		f, err := isolated(w, o.changes, o.limit)
		var late errLimit
		if errors.As(err, &late) {
			fmt.Fprintf(out, "%s\t%v\n", w, late)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%d MB\t%s\t%s\t%s\t%s / %s\t%s\t%d\t%s\t%s\n", w, ms(f.Cold), ms(f.User), ms(f.System), ms(f.Children),
			f.Peak>>20, f.Add, f.Remove, f.Replace, ms(f.Add.Own), ms(f.Add.Children), ms(f.Restart), f.RestartTransactions, ms(f.Compared), f.Meanwhile)
		if mode == barred {
			s.ofSize(w, f)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return reportScaling(mode, o, s)
}

// reportScaling shows how the cold start grows with the cluster.
func reportScaling(mode string, o options, s *scores) error {
	fmt.Println()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintf(out, "cold start\tN\t2N\ttime(2N)/time(N), bar %.1f\tCPU\tmemory(2N)/memory(N), bar %.1f\n", timeBar, memoryBar)
	for _, pair := range scaling {
		if pair[0].Mode = mode; !pair[0].possible() {
			continue
		}
		var best [2]figures
		var err error
		for i := 0; i < len(pair) && err == nil; i++ {
			pair[i].Mode = mode
			best[i], err = bestCold(pair[i], o.limit)
		}
		var late errLimit
		if errors.As(err, &late) {
			fmt.Fprintf(out, "%s, %s\t%v\n", pair[0], pair[1], late)
			continue
		}
		if err != nil {
			return err
		}
		if mode == barred {
			s.ofPair(pair, best)
		}
		ratio := func(of func(figures) float64) float64 { return of(best[1]) / of(best[0]) }
		fmt.Fprintf(out, "%s, %s\t%s\t%s\t%.2f\t%.2f\t%.2f\n", pair[0], pair[1], ms(best[0].Cold), ms(best[1].Cold),
			ratio(func(f figures) float64 { return f.Cold.Seconds() }),
			ratio(func(f figures) float64 { return (f.User + f.System + f.Children).Seconds() }),
			ratio(func(f figures) float64 { return float64(f.Peak) }))
	}
	fmt.Fprintln(out)
	return out.Flush()
}

// longCold is a cold start so long that others are not worth the wait.
const longCold = 5 * time.Second

// bestCold returns the figures of the best of a few cold starts, the least disturbed one.
func bestCold(w workload, limit time.Duration) (best figures, err error) {
	for i := range 3 {
		f, err := isolated(w, 0, limit)
		if err != nil {
			return best, err
		}
		if i == 0 || f.Cold < best.Cold {
			best = f
		}
		if best.Cold > longCold {
			break
		}
	}
	return best, nil
}
