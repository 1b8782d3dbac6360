package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/process"
	"sluice/test/cluster/tunnel"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// figures are what was measured of a contestant.
type figures struct {
	contestant
	start          time.Duration
	changes        []time.Duration // sorted
	burst, written time.Duration   // until the last of up to burstSize changes had effect, and was written
	steady, peak   float64         // memory in MB
	cpu            time.Duration   // of the process, for all of that
}

const (
	timeout    = 10 * time.Minute // of upstream, with many Services
	maxChanges = 30
	burstSize  = 1000
)

// course is a node on which a contestant runs.
type course struct {
	*cluster
	lab     *lab.Lab
	way     io.Closer
	proxy   *process.Process
	current int // generation of the watched Services
}

// enter starts a contestant on a node of its own, and returns how long it takes until all watched Services
// answer. close ends it.
func (c *cluster) enter(ctx context.Context, k contestant) (r *course, took time.Duration, err error) {
	r = &course{cluster: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.lab, err = lab.New(); err != nil {
		return r, 0, err
	}
	node, err := r.lab.Host("node1")
	if err != nil {
		return r, 0, err
	}
	way, err := tunnel.Open(node, c.server.Addr(), c.server.Addr())
	if err != nil {
		return r, 0, err
	}
	r.way = way
	if k.mode == "iptables" {
		if err := scenario.Modes["iptables-nft"].PrepareNode(ctx, r.lab); err != nil {
			return r, 0, err
		}
	}
	took, err = r.start(ctx, node, k)
	return r, took, err
}

// close ends the contestant, and removes its node.
func (r *course) close() (err error) {
	if r.proxy != nil {
		err = r.proxy.Kill()
	}
	if r.way != nil {
		r.way.Close()
	}
	if r.lab != nil {
		r.lab.Close()
	}
	return err
}

// measure runs a contestant on a node of its own.
func (c *cluster) measure(ctx context.Context, k contestant, limit time.Duration) (f figures, err error) {
	f.contestant = k
	r, took, err := c.enter(ctx, k)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	f.start = took
	if f.changes, err = r.changes(ctx, limit); err != nil {
		return f, err
	}
	if f.burst, f.written, err = r.burst(ctx); err != nil {
		return f, err
	}
	if f.steady, err = r.proxy.Memory("VmRSS:"); err != nil {
		return f, err
	}
	if f.peak, err = r.proxy.Memory("VmHWM:"); err != nil {
		return f, err
	}
	f.cpu, err = cpuTime(r.proxy.Cmd.Process.Pid)
	return f, err
}

// start starts the contestant, and returns how long it takes until all watched Services
// answer.
func (r *course) start(ctx context.Context, node *lab.Host, k contestant) (time.Duration, error) {
	kubeconfig, err := r.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		return 0, err
	}
	dir, err := r.lab.TempDir()
	if err != nil {
		return 0, err
	}
	command := append([]string{k.path, "--kubeconfig", kubeconfig,
		"--hostname-override", "node1", "--proxy-mode", k.mode,
		"--cluster-cidr", lab.ClusterCIDRs[0].String() + "," + lab.ClusterCIDRs[1].String(),
		// They belong to the machine, not to the node.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s"},
		k.flags...)
	begin := time.Now()
	if r.proxy, err = process.Start(node, filepath.Join(dir, "log"), command...); err != nil {
		return 0, err
	}
	if err := r.await(ctx, r.watched()); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// await waits until Services answer with their current endpoints.
func (r *course) await(ctx context.Context, services []int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, i := range services {
		flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: to(i), Timeout: 50 * time.Millisecond}
		for {
			o := r.lab.Connect(ctx, flow)
			if o.Kind == lab.Answered && slices.Contains(answerers[r.current], o.By) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%v: %v\n%s", flow, o, r.proxy.Tail())
			case <-r.proxy.Done:
				return fmt.Errorf("it has ended: %w\n%s", r.proxy.Err, r.proxy.Tail())
			default:
			}
		}
	}
	return nil
}

// next returns the endpoints that the watched Services do not have now.
func (r *course) next() []string {
	r.current = 1 - r.current
	return generations[r.current]
}

// changes replaces the endpoints of one Service at a time.
func (r *course) changes(ctx context.Context, limit time.Duration) ([]time.Duration, error) {
	one := r.watched()[:1]
	var took []time.Duration
	for begin := time.Now(); len(took) < maxChanges && time.Since(begin) < limit; {
		if err := r.update(ctx, one[0], r.next()); err != nil {
			return nil, err
		}
		written := time.Now()
		if err := r.await(ctx, one); err != nil {
			return nil, err
		}
		took = append(took, time.Since(written))
	}
	if r.current != 0 { // the others are there
		if err := r.update(ctx, one[0], r.next()); err != nil {
			return nil, err
		}
		if err := r.await(ctx, one); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// burst replaces the endpoints of many Services at once, and then makes it undone.
func (r *course) burst(ctx context.Context) (effective, written time.Duration, err error) {
	services := r.watched()
	for i := 0; i < r.services && len(services) < burstSize; i++ {
		if !r.isWatched(i) {
			services = append(services, i)
		}
	}
	for range 2 {
		addresses := r.next()
		begin := time.Now()
		if err := r.inParallel(ctx, len(services), func(ctx context.Context, n int) error { return r.update(ctx, services[n], addresses) }); err != nil {
			return 0, 0, err
		}
		done := time.Since(begin)
		if err := r.await(ctx, r.watched()); err != nil {
			return 0, 0, err
		}
		if effective == 0 {
			effective, written = time.Since(begin), done
		}
	}
	return effective, written, nil
}

// cpuTime returns the CPU time of a process and of the children that it waited for.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const utime, cstime, ticks = 11, 14, 100
	if len(fields) <= cstime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var sum time.Duration
	for _, field := range fields[utime : cstime+1] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum, nil
}
