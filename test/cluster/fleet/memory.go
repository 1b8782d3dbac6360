package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/test/lab"
)

// profiles is where the proxy serves profiles, on its host.
const profiles = "127.0.0.1:10249"

// settleTime is how long the proxy has after the start before its memory is read.
const settleTime = 3 * time.Second

// measureMemory prints what a real proxy takes: after the start, at most until then, and after changes.
func (c *cluster) measureMemory(ctx context.Context) error {
	for range c.memory {
		for binary := range strings.SplitSeq(c.ours, ",") {
			if err := c.measureMemoryOf(ctx, binary); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cluster) measureMemoryOf(ctx context.Context, binary string) error {
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer l.Close()
	begin := time.Now()
	p, err := c.startProxy(ctx, l, binary)
	if err != nil {
		return err
	}
	defer p.close()
	pid := p.Cmd.Process.Pid
	started, size := time.Since(begin), fmt.Sprintf("%d×%d", c.services, c.endpoints)
	cpu, err := cpuTime(pid)
	if err != nil {
		return err
	}
	time.Sleep(settleTime)
	now, err := memories(pid)
	if err != nil {
		return err
	}
	if c.profile != "" {
		if err := fetchProfile(l, c.profile+"-"+filepath.Base(binary)); err != nil {
			return err
		}
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	changes, err := c.changeFor(ctx, c.time)
	if err != nil {
		return err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return err
	}
	then, err := memories(pid)
	if err != nil {
		return err
	}
	fmt.Printf("%s: answers after %.2f s, %.2f s of CPU time; after the start %s; after %d changes %s, %.2f ms of CPU time each\n",
		binary, started.Seconds(), cpu.Seconds(), now, changes, then, (after-before).Seconds()*1e3/float64(max(1, changes)))
	if bar, is := bars[size]; is {
		fmt.Printf("  bars for %s: answers after %s, %s after the start, at most %s\n", size, bar.start, bar.steady, bar.peak)
	}
	return nil
}

// bars are what a proxy in nftables mode may take, by the size of the cluster.
var bars = map[string]struct{ start, steady, peak string }{
	"10000×2": {"0.4 s", "60 MB", "75 MB"},
	"5000×50": {"1.2 s", "110 MB", "110 MB"},
	"45000×1": {"1.2 s", "-", "-"},
}

// memories says what a process has: resident, of that anonymous and of files, and at most.
func memories(pid int) (string, error) {
	var all [4]float64
	for i, key := range []string{"VmRSS:", "RssAnon:", "RssFile:", "VmHWM:"} {
		var err error
		if all[i], err = memory(pid, key); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%.1f MiB (%.1f anonymous, %.1f of files), at most %.1f MiB", all[0], all[1], all[2], all[3]), nil
}

// fetchProfile writes a heap profile of the proxy to a file.
func fetchProfile(l *lab.Lab, path string) error {
	host, err := l.Host("node1")
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = host.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}}
	for suffix, query := range map[string]string{"": "?gc=1", ".txt": "?debug=1&gc=1"} {
		answer, err := client.Get("http://" + profiles + "/debug/pprof/heap" + query)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", answer.Status, text)
		}
		if err := os.WriteFile(path+suffix, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
