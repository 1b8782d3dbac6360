package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// sliceSize is how many endpoints the cluster's controller puts into a slice.
const sliceSize = 100

func measure(w workload, changes int, profile string) (figures, error) {
	var f figures
	cluster := newCluster(w)
	events := cluster.events()
	debug.FreeOSMemory()

	stopProfile, err := startProfile(profile)
	if err != nil {
		return f, err
	}
	p, err := start(events)
	stopProfile()
	if err != nil {
		return f, err
	}
	f.Cold = p.first
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return f, err
	}
	f.User, f.System = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
	if f.Peak, err = peakMemory(); err != nil {
		return f, err
	}
	if changes > 0 {
		f.Add = p.each(changes, cluster.added)
		f.Replace = p.each(changes, cluster.replaced)
		f.Remove = p.each(changes, cluster.removed)
	}
	p.stop()

	p, err = start(events)
	if err != nil {
		return f, err
	}
	defer p.stop()
	f.Restart, f.RestartTransactions = p.first, p.firstResult.Transactions
	return f, nil
}

func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, pprof.StartCPUProfile(f)
}

// pipe is a running engine with its dataplane.
type pipe struct {
	engine      *engine.Engine
	dataplane   *nftables.Dataplane
	commits     chan dataplane.Result
	first       time.Duration
	firstResult dataplane.Result
	cancel      context.CancelFunc
	ended       chan struct{}
}

// start hands the events over and waits until they are in the kernel.
func start(events []model.Event) (*pipe, error) {
	d, err := nftables.New(nftables.Options{Logger: logr.Discard()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipe{dataplane: d, commits: make(chan dataplane.Result, 1), cancel: cancel, ended: make(chan struct{})}
	p.engine = engine.New(engine.Options{
		Planner: plan.New(plan.Config{
			NodeName:      "bench",
			DetectLocal:   plan.DetectClusterCIDR,
			ClusterCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			MasqueradeBit: 14,
		}),
		Dataplane: d,
		Logger:    logr.Discard(),
		OnCommit:  func(_ *plan.Change, r dataplane.Result) { p.commits <- r },
	})
	begin := time.Now()
	go func() {
		defer close(p.ended)
		p.engine.Run(ctx)
	}()
	p.engine.Update(events...)
	p.engine.Synced()
	p.firstResult = <-p.commits
	p.first = time.Since(begin)
	if len(p.firstResult.Failed) > 0 {
		return nil, fmt.Errorf("the kernel refused %d frontends", len(p.firstResult.Failed))
	}
	return p, nil
}

func (p *pipe) stop() {
	p.cancel()
	<-p.ended
	p.dataplane.Close()
}

// each measures changes one at a time, from the engine to the commit.
func (p *pipe) each(n int, change func(i int) model.Event) latency {
	took := make([]time.Duration, n)
	for i := range took {
		e := change(i)
		begin := time.Now()
		p.engine.Update(e)
		<-p.commits
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return latency{took[n/2], took[n*99/100]}
}

func peakMemory() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/self/status")
}

// cluster makes the objects of a workload.
type cluster struct {
	workload
	slices []*model.Slice // by Service, the last slice of each
	fresh  uint32
}

func newCluster(w workload) *cluster {
	return &cluster{workload: w, slices: make([]*model.Slice, w.Services)}
}

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

const (
	firstClusterIP = 0xAC100001 // 172.16.0.1
	firstPodIP     = 0x0A000001 // 10.0.0.1
	firstFreshIP   = 0x0B000001
)

func (c *cluster) events() []model.Event {
	var events []model.Event
	node := &model.Node{Name: "bench", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	events = append(events, model.SetNode{Node: node})
	pod := uint32(firstPodIP)
	for i := range c.Services {
		name := model.Name{Namespace: "bench", Name: "svc-" + strconv.Itoa(i)}
		events = append(events, model.SetService{Service: &model.Service{
			Name:       name,
			ClusterIPs: []netip.Addr{ipv4(firstClusterIP + uint32(i))},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}})
		for at := 0; at < c.Endpoints; at += sliceSize {
			s := &model.Slice{
				Name:    model.Name{Namespace: "bench", Name: name.Name + "-" + strconv.Itoa(at)},
				Service: name.Name,
				Family:  model.IPv4,
				Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			}
			for range min(sliceSize, c.Endpoints-at) {
				s.Endpoints = append(s.Endpoints, endpoint(pod))
				pod++
			}
			events = append(events, model.SetSlice{Slice: s})
			c.slices[i] = s
		}
	}
	return events
}

func endpoint(ip uint32) model.Endpoint {
	return model.Endpoint{Addr: ipv4(ip), Node: "elsewhere", Conditions: model.Ready | model.Serving}
}

// change puts a changed copy of a Service's last slice in its place.
func (c *cluster) change(i int, f func([]model.Endpoint) []model.Endpoint) model.Event {
	i %= c.Services
	s := *c.slices[i]
	s.Endpoints = f(slices.Clone(s.Endpoints))
	c.slices[i] = &s
	return model.SetSlice{Slice: &s}
}

func (c *cluster) new() model.Endpoint {
	c.fresh++
	return endpoint(firstFreshIP + c.fresh)
}

func (c *cluster) added(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { return append(eps, c.new()) })
}

func (c *cluster) replaced(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { eps[len(eps)-1] = c.new(); return eps })
}

func (c *cluster) removed(i int) model.Event {
	return c.change(i, func(eps []model.Endpoint) []model.Endpoint { return eps[:len(eps)-1] })
}
