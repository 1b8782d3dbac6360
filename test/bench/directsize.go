//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// directSizes are clusters whose Services all have direct return: of few nodes, all of which have endpoints of all
// Services, or some of each; and of many, so that hardly two Services have endpoints on the same nodes.
var directSizes = []workload{
	{Services: 1000, Nodes: 4, Endpoints: 4},
	{Services: 1000, Nodes: 4, Endpoints: 3},
	{Services: 1000, Nodes: 100, Endpoints: 4},
	{Services: 100, Nodes: 100, Endpoints: 100},
}

const (
	directChanges = 30
	directLimit   = 10 * time.Minute
)

// directFigures are what direct return costs beside the rest: of the first write, before anything is handed on, of the
// begin, of changes of one Service, of a node that can no longer be used, of one that leaves with all its endpoints,
// of a restart, and of all that the kernel then has.
type directFigures struct {
	Start, Begin, Change, Worst, Unusable, Leave, Restart time.Duration
	CPU                                                   time.Duration // of the start
	Elements                                              int
	Resident, Kernel                                      int64 // bytes, since before the start
}

// reportDirectSizes measures what many Services with direct return cost their node.
func reportDirectSizes() error {
	fmt.Printf("\nServices with direct return: what they cost their node, beside what all Services do\n\n")
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "Services×endpoints, nodes\tstart\tits CPU\tbegin\tone change p50 / max\tnode unusable\tnode leaves\t"+
		"restart\telements\tproxy\tkernel")
	for _, w := range directSizes {
		w.Mode = "nftables"
		var f directFigures
		err := inChild(w, directLimit, &f, "-directly")
		var late errLimit
		if errors.As(err, &late) {
			fmt.Fprintf(out, "%s, %d\t%v\n", w, w.Nodes, late)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s, %d\t%s\t%s\t%s\t%s / %s\t%s\t%s\t%s\t%d\t%d MB\t%d MB\n", w, w.Nodes, ms(f.Start), ms(f.CPU), ms(f.Begin),
			ms(f.Change), ms(f.Worst), ms(f.Unusable), ms(f.Leave), ms(f.Restart), f.Elements, f.Resident>>20, f.Kernel>>20)
	}
	return out.Flush()
}

// directCluster are the objects, and what the dataplane is told.
type directCluster struct {
	workload
	slices   []*model.Slice
	observed chan struct{} // after each change

	mu       sync.Mutex
	settings dataplane.Direct
}

// directNode is the name of a node, of which the first is that of the proxy.
func directNode(i int) string {
	if i == 0 {
		return "bench"
	}
	return "node-" + strconv.Itoa(i)
}

func (c *directCluster) addr(i int) netip.Addr { return ipv4(0xC0A80001 + uint32(i)) } // 192.168.0.1

func (c *directCluster) events() []model.Event {
	self := &model.Node{Name: directNode(0), IPs: []netip.Addr{c.addr(0)}}
	events := []model.Event{model.SetNode{Node: self}, model.SetHostIPs{IPs: self.IPs}}
	for i := 1; i < c.Nodes; i++ {
		events = append(events, model.SetPeer{Peer: &model.Peer{Name: directNode(i), IPs: []netip.Addr{c.addr(i)}}})
	}
	random := rand.New(rand.NewPCG(1, 2))
	pod := uint32(firstPodIP)
	for i := range c.Services {
		name := model.Name{Namespace: "bench-" + strconv.Itoa(i/500), Name: "svc-" + strconv.Itoa(i)}
		s := &model.Slice{Name: name, Service: name.Name, Family: model.IPv4,
			Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: endpointPort}}}
		for _, on := range random.Perm(c.Nodes)[:c.Endpoints] {
			e := endpoint(ipv4(pod))
			e.Node = directNode(on)
			s.Endpoints = append(s.Endpoints, e)
			pod++
		}
		c.slices = append(c.slices, s)
		events = append(events, model.SetSlice{Slice: s}, model.SetService{Service: &model.Service{
			Name: name, ClusterIPs: []netip.Addr{ipv4(firstClusterIP + uint32(i))}, Direct: "sluice/forwarding",
			Ports:           []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
			LoadBalancerIPs: []netip.Addr{ipv4(firstLoadBalancerIP + uint32(i))},
		}})
	}
	return events
}

// Committed implements engine.Observer.
func (c *directCluster) Committed(commit *engine.Commit) {
	if commit.Change.Empty() {
		return
	}
	defer func() { c.observed <- struct{}{} }()
	c.mu.Lock()
	defer c.mu.Unlock()
	for before, now := range commit.Change.Frontends() {
		if before != nil && before.Direct != nil {
			delete(c.settings.Frontends, before.Key)
			c.settings.Changed[before.Key] = struct{}{}
		}
		if now != nil && now.Direct != nil {
			c.settings.Frontends[now.Key] = now
			c.settings.Changed[now.Key] = struct{}{}
		}
	}
}

// write has the kernel follow, and returns how long that takes.
func (c *directCluster) write(d dataplane.DirectReturner) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	settings := c.settings
	settings.Peers = slices.Clone(settings.Peers)
	begin := time.Now()
	err := d.Direct(context.Background(), &settings)
	for errors.Is(err, nft.ErrInterrupted) { // another part of the proxy wrote meanwhile
		err = d.Direct(context.Background(), &settings)
	}
	c.settings.Changed = map[plan.Key]struct{}{}
	return time.Since(begin), err
}

// update has the engine follow events.
func (c *directCluster) update(p *pipe, events ...model.Event) {
	p.engine.Update(events...)
	<-p.commits
	<-c.observed
}

// without returns the slice of a Service without its endpoints on a node.
func (c *directCluster) without(i int, node string) *model.Slice {
	s := *c.slices[i]
	s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e model.Endpoint) bool { return e.Node == node })
	return &s
}

func newDirectCluster(w workload) *directCluster {
	c := &directCluster{workload: w, observed: make(chan struct{}, 1)}
	c.settings = dataplane.Direct{Node: directNode(0), Device: "lo", Index: 1, NoIPv6: true, IPv4: c.addr(0), MasqueradeMark: 1 << 14,
		NodePortIPs: []netip.Addr{c.addr(0)}, Frontends: map[plan.Key]*plan.Frontend{}, Changed: map[plan.Key]struct{}{}}
	for i := 1; i < w.Nodes; i++ {
		c.settings.Peers = append(c.settings.Peers, dataplane.DirectPeer{Name: directNode(i), IPs: []netip.Addr{c.addr(i)},
			IPv4: dataplane.DirectPath{Addr: c.addr(i), MAC: dataplane.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, Usable: true}})
	}
	return c
}

func measureDirect(w workload, profile string) (f directFigures, err error) {
	c := newDirectCluster(w)
	p, err := startObserved(w.Mode, c.events(), []engine.Observer{c}, func(cfg *plan.Config) { cfg.DirectReturn, cfg.CanDirectReturn = true, true })
	if err != nil {
		return f, err
	}
	<-c.observed
	d, is := p.dataplane.(dataplane.DirectReturner)
	if !is || len(c.settings.Frontends) != w.Services {
		return f, fmt.Errorf("%d frontends have direct return, not %d", len(c.settings.Frontends), w.Services)
	}
	resident, kernel := f.memory()
	stop, err := startProfile(profile)
	if err != nil {
		return f, err
	}
	cpu := totalTime(syscall.RUSAGE_SELF)
	f.Start, err = c.write(d)
	f.CPU = totalTime(syscall.RUSAGE_SELF) - cpu
	stop()
	if err != nil {
		return f, err
	}
	time.Sleep(dataplane.DirectDelay)
	if f.Begin, err = c.write(d); err != nil {
		return f, err
	}
	f.Resident, f.Kernel = f.memory()
	f.Resident, f.Kernel = f.Resident-resident, f.Kernel-kernel
	if f.Elements, err = directElements(); err != nil {
		return f, err
	}
	return f, f.changes(c, p, d)
}

// changes measures changes one after the other.
func (f *directFigures) changes(c *directCluster, p *pipe, d dataplane.DirectReturner) (err error) {
	var took []time.Duration
	for i := range directChanges {
		gone := c.slices[i].Endpoints[i%2].Node
		c.update(p, model.SetSlice{Slice: c.without(i, gone)})
		once, err := c.write(d)
		if err != nil {
			return err
		}
		took = append(took, once)
	}
	slices.Sort(took)
	f.Change, f.Worst = took[len(took)/2], took[len(took)-1]
	last := &c.settings.Peers[len(c.settings.Peers)-1]
	last.IPv4.Usable, last.IPv4.MAC = false, dataplane.MAC{}
	if f.Unusable, err = c.write(d); err != nil {
		return err
	}
	events := []model.Event{model.DeletePeer{Name: last.Name}}
	for i := range c.slices {
		if s := c.without(i, last.Name); len(s.Endpoints) < len(c.slices[i].Endpoints) {
			events = append(events, model.SetSlice{Slice: s})
		}
	}
	c.settings.Peers = c.settings.Peers[:len(c.settings.Peers)-1]
	c.update(p, events...)
	if f.Leave, err = c.write(d); err != nil {
		return err
	}
	again, err := open(c.Mode)
	if err != nil {
		return err
	}
	defer again.Close()
	for k := range c.settings.Frontends {
		c.settings.Changed[k] = struct{}{}
	}
	f.Restart, err = c.write(again.(dataplane.DirectReturner))
	return err
}

// memory returns how much this process has, and the kernel, in whatever it does for anybody.
func (*directFigures) memory() (resident, kernel int64) {
	resident, _ = memoryOf("VmRSS:")
	kernel, _ = lineOf("/proc/meminfo", "SUnreclaim:")
	return resident, kernel
}

// directElements counts what the kernel has.
func directElements() (n int, err error) {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for _, family := range []nft.Family{nft.NetDev, nft.IP} {
		table := nft.Table{Family: family, Name: "sluice-direct"}
		sets, err := conn.Sets(context.Background(), table)
		if err != nil {
			return 0, err
		}
		for _, s := range sets {
			if err := conn.Elements(context.Background(), table, s.Name, func(*nft.Element) error { n++; return nil }); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}
