//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"syscall"
	"time"
)

// figures are the results.
type figures struct {
	Series, Bytes, Compressed int
	CPU                       time.Duration // of this process, for one scrape as text
	Protobuf                  time.Duration // the same in protobuf
	HeapBefore, HeapAfter     uint64
	Changes                   []latency
}

// latency is the duration of changes until they were in the kernel, under some
// load.
type latency struct {
	While    string
	P50, P99 time.Duration
	Count    int
}

func measure(o options) (figures, error) {
	var f figures
	p, err := start(o.services)
	if err != nil {
		return f, err
	}
	defer p.stop()
	plain := p.scrape("", "")
	f.Bytes, f.Compressed = plain.Len(), p.scrape(text, "gzip").Len()
	for line := range bytes.Lines(plain.Bytes()) {
		if line[0] != '#' {
			f.Series++
		}
	}
	if err := f.scrapes(p, o); err != nil {
		return f, err
	}
	f.Changes = []latency{
		p.latency("no scrapes", o.changes, 0),
		p.latency("a scrape every second", o.changes, time.Second),
		p.latency("a scrape every 100 ms", o.changes, 100*time.Millisecond),
	}
	return f, nil
}

// scrapes measures the cost of many scrapes.
func (f *figures) scrapes(p *pipe, o options) error {
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	f.HeapBefore = heap()
	// Alternating, so that other load on the machine slows down both.
	for range o.scrapes {
		f.CPU += p.cost(text) / time.Duration(o.scrapes)
		f.Protobuf += p.cost(protobuf) / time.Duration(o.scrapes)
	}
	f.HeapAfter = heap()
	return nil
}

// The formats that clients request.
const (
	text     = "text/plain;version=0.0.4"
	protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// cost is the CPU time of a scrape, in one of the formats.
func (p *pipe) cost(format string) time.Duration {
	before := cpuTime()
	p.scrape(format, "gzip")
	return cpuTime() - before
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuTime returns the CPU time of this process, including the kernel.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // the kernel knows the sort
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// scrape returns one answer of /metrics, after the time for which the kernel is not
// read again.
func (p *pipe) scrape(format, encoding string) *bytes.Buffer {
	p.clock.step()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for name, value := range map[string]string{"Accept": format, "Accept-Encoding": encoding} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	p.metrics.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		panic(fmt.Sprintf("/metrics answers %d: %s", w.Code, w.Body)) // a benchmark of nothing
	}
	return w.Body
}

// latency measures changes one at a time, while metrics are scraped; every 0 for
// no scrapes.
func (p *pipe) latency(while string, during, every time.Duration) latency {
	ctx, cancel := context.WithTimeout(context.Background(), during)
	defer cancel()
	var scraper sync.WaitGroup
	if every > 0 {
		scraper.Go(func() {
			for ctx.Err() == nil {
				p.scrape(text, "gzip")
				select {
				case <-time.After(every):
				case <-ctx.Done():
				}
			}
		})
	}
	var took []time.Duration
	for ctx.Err() == nil {
		took = append(took, p.change())
		time.Sleep(2 * time.Millisecond) // as in a cluster, they do not come without a pause
	}
	scraper.Wait()
	slices.Sort(took)
	return latency{while, took[len(took)/2], took[len(took)*99/100], len(took)}
}
