//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/telemetry"
	"sluice/internal/observe/telemetry/perservice"
	"sluice/internal/plan"
)

// pipe is an engine with its dataplane, and the metrics of both.
type pipe struct {
	engine    *engine.Engine
	kernel    dataplane.Dataplane
	collector *perservice.Collector
	metrics   http.Handler
	clock     *fastClock
	commits   chan struct{}
	services  int
	changes   uint32
	cancel    context.CancelFunc
	ended     chan struct{}
}

// fastClock is the real clock, with leaps.
type fastClock struct {
	clock.RealClock
	ahead atomic.Int64
}

// step is longer than anything is cached between scrapes.
func (c *fastClock) step()          { c.ahead.Add(int64(time.Minute)) }
func (c *fastClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.ahead.Load())) }

// start programs that many Services.
func start(services int) (*pipe, error) {
	kernel, err := nftables.New(nftables.Options{Logger: logr.Discard()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipe{kernel: kernel, clock: &fastClock{}, commits: make(chan struct{}, 1), services: services,
		cancel: cancel, ended: make(chan struct{})}
	p.engine = engine.New(engine.Options{
		Planner:   plan.New(plan.Config{NodeName: "bench", MasqueradeBit: 14}),
		Dataplane: kernel,
		Logger:    logr.Discard(),
	})
	if err := p.observe(); err != nil {
		return nil, err
	}
	go func() { defer close(p.ended); _ = p.engine.Run(ctx) }() // it ends without an error
	go func() { _ = p.collector.Run(ctx) }()
	p.engine.Update(events(services)...)
	p.engine.Synced()
	<-p.commits
	if failed := p.engine.Status().Failed; failed > 0 {
		return nil, fmt.Errorf("the kernel refused %d frontends", failed)
	}
	return p, nil
}

// observe creates what is behind /metrics.
func (p *pipe) observe() error {
	registry := metrics.NewKubeRegistry()
	all, err := telemetry.NewMetrics(registry, nftables.Mode, model.Families[:])
	if err != nil {
		return err
	}
	updater := telemetry.NewUpdater(telemetry.UpdaterOptions{
		Metrics: all,
		Engine:  p.engine,
	})
	p.collector = perservice.New(perservice.Options{
		Limit:   1 << 20,
		Traffic: dataplane.TrafficOf(p.kernel),
		Evidence: func(names []model.Name) []plan.Evidence {
			out := make([]plan.Evidence, len(names))
			p.engine.Inspect(func(v engine.View) {
				for i, name := range names {
					out[i] = v.Evidence(name)
				}
			})
			return out
		},
		Logger: logr.Discard(),
		Clock:  p.clock,
	})
	p.metrics = telemetry.NewServer(telemetry.ServerOptions{
		Metrics: registry, Refresh: updater.Refresh, More: p.collector, Mode: nftables.Mode.Name, Logger: logr.Discard(),
	}).Handler()
	p.engine.Observe(updater, p.collector, engine.ObserverFunc(func(*engine.Commit) { p.commits <- struct{}{} }))
	return nil
}

func (p *pipe) stop() {
	p.cancel()
	<-p.ended
	p.kernel.Close()
}

// change adds or removes an endpoint of a Service, and returns how long that took.
func (p *pipe) change() time.Duration {
	p.changes++
	i := int(p.changes/2) % p.services
	e := slice(i, 2+int(p.changes%2))
	begin := time.Now()
	p.engine.Update(model.SetSlice{Slice: e})
	<-p.commits
	return time.Since(begin)
}

const (
	firstClusterIP = 0xAC100001 // 172.16.0.1
	firstPodIP     = 0x0A000001 // 10.0.0.1
	maxEndpoints   = 4
)

func ipv4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func nameOf(i int) model.Name {
	return model.Name{Namespace: "team-" + strconv.Itoa(i%100), Name: "service-" + strconv.Itoa(i)}
}

func events(services int) []model.Event {
	var out []model.Event
	for i := range services {
		out = append(out, model.SetService{Service: &model.Service{
			Name:       nameOf(i),
			ClusterIPs: []netip.Addr{ipv4(firstClusterIP + uint32(i))},
			Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}}, model.SetSlice{Slice: slice(i, 2)})
	}
	return out
}

// slice returns the slice of a Service with that many endpoints.
func slice(i, endpoints int) *model.Slice {
	name := nameOf(i)
	s := &model.Slice{Name: name, Service: name.Name, Family: model.IPv4,
		Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}}}
	for n := range endpoints {
		ip := ipv4(firstPodIP + uint32(i*maxEndpoints+n))
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: ip, Node: "elsewhere", Conditions: model.Ready | model.Serving})
	}
	return s
}
