//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// neighbourTime is how long changes are measured after a start, and after a
// disturbance; changePause is the time between two.
const (
	neighbourTime = 10 * time.Second
	changePause   = 50 * time.Millisecond
)

// neighbourFigures are the cost of changes while another program writes its own table.
type neighbourFigures struct {
	Start, Disturbed phase
	// Repairs is the number of repairs. One disturbance needs one.
	Repairs int
}

// phase is the latency of changes, and the CPU time of the process from the beginning
// of the phase to its end.
type phase struct {
	P50, P99, CPU time.Duration
}

func measureNeighbour(w workload) (neighbourFigures, error) {
	var f neighbourFigures
	cluster := newCluster(w)
	events := cluster.events()
	if w.Writes != "" {
		stop, err := startNeighbour(w.Writes)
		if err != nil {
			return f, err
		}
		defer stop()
	}
	begin := totalTime(syscall.RUSAGE_SELF)
	p, err := start(w.Mode, events)
	if err != nil {
		return f, err
	}
	defer p.stop()
	started := p.engine.Status().Reconciles
	f.Start = p.phase(cluster, begin)
	begin = totalTime(syscall.RUSAGE_SELF)
	if err := command("nft", "flush", "chain", "ip", "sluice", "dispatch"); err != nil {
		return f, err
	}
	f.Disturbed = p.phase(cluster, begin)
	f.Repairs = int(p.engine.Status().Reconciles - started)
	return f, nil
}

// phase makes changes and measures their cost, given the CPU time that the process
// has used so far.
func (p *pipe) phase(c *cluster, begin time.Duration) phase {
	var took []time.Duration
	for deadline := time.Now().Add(neighbourTime); time.Now().Before(deadline); time.Sleep(changePause) {
		e := c.replaced(len(took))
		at := time.Now()
		p.engine.Update(e)
		<-p.commits
		took = append(took, time.Since(at))
	}
	cpu := totalTime(syscall.RUSAGE_SELF) - begin
	slices.Sort(took)
	return phase{P50: took[len(took)/2], P99: took[len(took)*99/100], CPU: cpu}
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// startNeighbour starts a program that keeps writing its own table.
func startNeighbour(pause string) (stop func(), err error) {
	const write = "add table ip neighbour; add chain ip neighbour c; flush chain ip neighbour c; add rule ip neighbour c counter"
	c := exec.Command("sh", "-c", fmt.Sprintf("while nft '%s'; do sleep %s; done", write, pause))
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	}, nil
}

// reportNeighbours compares the cost of changes with and without a neighbour's
// writes.
func reportNeighbours(limit time.Duration) error {
	fmt.Println("\nnftables, changes while another program writes its own table (ratio to: none does)")
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "cluster\twrites\tafter a start: p50 / p99\tCPU\tafter a disturbance: p50 / p99\tCPU\trepairs")
	for _, w := range []workload{{Services: 10_000, Endpoints: 2}, {Services: 5_000, Endpoints: 50}} {
		w.Mode = "nftables"
		var alone neighbourFigures
		for _, w.Writes = range []string{"", "1", "0.1"} {
			var f neighbourFigures
			if err := inChild(w, limit, &f, "-neighbour"); err != nil {
				return fmt.Errorf("%v: %w", w, err)
			}
			often := "every " + w.Writes + " s"
			if w.Writes == "" {
				alone, often = f, "never"
			}
			fmt.Fprintf(out, "%v\t%s\t%s\t%s\t%d\n", w, often, f.Start.beside(alone.Start), f.Disturbed.beside(alone.Disturbed), f.Repairs)
		}
	}
	return nil
}

// beside prints a phase with its ratios to another.
func (p phase) beside(alone phase) string {
	ratio := func(a, b time.Duration) string {
		return fmt.Sprintf("%.2f ms (%.1f)", a.Seconds()*1000, a.Seconds()/b.Seconds())
	}
	return strings.Join([]string{ratio(p.P50, alone.P50) + " / " + ratio(p.P99, alone.P99), ratio(p.CPU, alone.CPU)}, "\t")
}
