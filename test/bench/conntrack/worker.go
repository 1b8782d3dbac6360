//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
)

const (
	services       = 1000
	port           = 53
	targetPort     = 5353
	firstClusterIP = 0xAC100001 // 172.16.0.1
	firstPodIP     = 0x0A000001 // 10.0.0.1
	firstFreshIP   = 0x0B000001 // 11.0.0.1

	// timeout bounds the wait for a pass.
	timeout = 10 * time.Minute
)

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// worker is a proxy that executes orders.
type worker struct {
	engine  *engine.Engine
	commits chan struct{}
	passes  chan pass

	endpoints [][]model.Endpoint // of each Service
	made      uint32             // endpoints that came later
	next      int                // the Service of the last change

	left   time.Time // when the endpoint of the stale entries was seen to leave
	memory int64     // resident at that time

	deleted int // by all passes; belongs to the reconciler's goroutine
}

// work runs a proxy and executes orders until there are no more.
func work(orders io.Reader, answers io.Writer) error {
	w, stop, err := newWorker()
	if err != nil {
		return err
	}
	defer stop()
	in, out := json.NewDecoder(orders), json.NewEncoder(answers)
	for {
		var order string
		if err := in.Decode(&order); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		a, err := w.obey(order)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func newWorker() (w *worker, stop func(), err error) {
	d, err := nftables.New(nftables.Options{Logger: logr.Discard()})
	if err != nil {
		return nil, nil, err
	}
	w = &worker{commits: make(chan struct{}, 1), passes: make(chan pass, 1024)}
	w.engine = engine.New(engine.Options{
		Planner:   plan.New(plan.Config{NodeName: "bench", MasqueradeBit: 14}),
		Dataplane: d,
		Logger:    logr.Discard(),
	})
	tracker := conntrack.New(conntrack.Options{Logger: logr.Discard(), Engine: w.engine, OnPass: w.onPass})
	w.engine.Observe(tracker, engine.ObserverFunc(func(*engine.Commit) { w.commits <- struct{}{} }))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.engine.Run(ctx) })
	running.Go(func() { _ = tracker.Run(ctx) })
	w.engine.Update(w.cluster()...)
	w.engine.Synced()
	<-w.commits
	<-w.passes // the first pass looks at everything
	return w, func() { cancel(); running.Wait(); d.Close() }, nil
}

// pass is a finished pass.
type pass struct {
	conntrack.Pass
	end     time.Time
	deleted int // by all passes so far
}

func (w *worker) onPass(p conntrack.Pass) {
	w.deleted += p.Deleted
	w.passes <- pass{p, time.Now(), w.deleted}
}

func (w *worker) obey(order string) (answer, error) {
	switch order {
	case "count":
		n, err := entries()
		return answer{Entries: n}, err
	case "add":
		i := w.pick()
		return w.change(i, append(slices.Clone(w.endpoints[i]), w.fresh())...), nil
	case "replace":
		return w.change(w.pick(), w.fresh()), nil
	case "leave":
		return w.leave()
	case "swept":
		return w.swept()
	}
	return answer{}, fmt.Errorf("unknown order %q", order)
}

// leave removes the endpoint of the stale entries.
func (w *worker) leave() (answer, error) {
	debug.FreeOSMemory()
	// From here on, the memory peak is that of sweeping.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return answer{}, err
	}
	var err error
	if w.memory, err = status("VmRSS"); err != nil {
		return answer{}, err
	}
	a := w.change(0, w.fresh())
	w.left = time.Now()
	return a, nil
}

// swept waits until the stale entries are deleted.
func (w *worker) swept() (answer, error) {
	deadline := time.After(timeout)
	for {
		select {
		case <-deadline:
			return answer{}, errors.New("no pass deleted anything")
		case p := <-w.passes:
			if p.Err != nil {
				return answer{}, p.Err
			}
			if p.Deleted == 0 {
				continue
			}
			return w.clean(p)
		}
	}
}

// clean reports the pass that cleaned the table.
func (w *worker) clean(p pass) (answer, error) {
	peak, err := status("VmHWM")
	if err != nil {
		return answer{}, err
	}
	n, err := entries()
	return answer{Took: p.end.Sub(w.left), Seen: p.Seen, Deleted: p.deleted, Entries: n, Memory: peak - w.memory}, err
}

// entries counts the entries of the table.
func entries() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// status returns a line of the process's status, in bytes.
func status(name string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/self/status", name)
}
