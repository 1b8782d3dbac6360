//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/plan"
	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// What the others may feel of a hostile tenant: nothing is lost, and 99 of 100 of their changes take at
// most so long, and beside one Service, whatever is done with it, at most so many times as long as
// beside a tenant that is quiet.
const (
	fairRatio = 3
	fairTime  = 50 * time.Millisecond
)

// Whatever one tenant does to Services of its own, the changes of others are in force as soon as
// without it, and none of their connections is lost.
func TestTenants(t *testing.T) {
	testkit.NotShort(t, "it floods the proxy with changes for a while")
	modes := []string{"nftables"}
	if longRun() { // which also has longer phases and more kinds of hostility
		modes = slices.DeleteFunc(scenario.ModesFor(t.Name()), func(m string) bool {
			return !slices.Contains(scenario.SupportedModeNames(t.Context()), m)
		})
	}
	if *mode != "" {
		modes = []string{*mode}
	}
	for _, m := range modes {
		t.Run(m, func(t *testing.T) { runTenants(t, m, time.Now().Add(*duration/time.Duration(len(modes)))) })
	}
}

// neighbourhood is a proxy with several tenants.
type neighbourhood struct {
	*testing.T
	*node
	ctx     context.Context
	rng     *rand.Rand
	meters  []service // of the innocent tenants, whose changes are measured
	changes int
	traffic *traffic
	// took are how long changes of the innocent took, by what the hostile one did.
	took map[string][]time.Duration
	diary
}

// innocents are the namespaces of innocent tenants.
const innocents = 3

// still is what the hostile tenant does between its attacks.
const still = "nothing"

func runTenants(t *testing.T, m string, end time.Time) {
	kinds := slices.DeleteFunc(hostilities(), func(h hostility) bool { return h.long && !longRun() || !chosen(h.name) })
	if len(kinds) == 0 {
		t.Skipf("no hostility is called %q", *only)
	}
	server := fakeapi.New()
	n, err := newNode(server, m, firstSettings())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &neighbourhood{T: t, node: n, ctx: ctx, rng: rand.New(rand.NewPCG(*seed, 3)), took: map[string][]time.Duration{}, diary: diary{began: time.Now()}}
	t.Cleanup(func() {
		cancel()
		if s.traffic != nil {
			s.traffic.stop()
		}
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", n.lastLines())
		}
		if err := errors.Join(server.Close(), n.close()); err != nil {
			t.Error(err)
		}
	})
	s.must(s.settle())
	s.must(s.start(ctx))
	s.must(s.follows(ctx, "pod1", followLimit))
	s.traffic = startTraffic(ctx, s.lab, addInnocents)
	single := map[string]bool{}
	for first := true; first || time.Now().Before(end); first = false {
		for _, h := range kinds {
			single[h.name] = h.services == 1
			s.phase(still, nil)
			s.must(h.begin(s.api))
			s.must(s.calm())
			s.phase(h.name, h.flap)
			s.must(s.calm())
			s.must(h.end(s.api))
			s.must(s.calm())
		}
	}
	s.judge(single)
	s.traffic.stop()
	fresh, err := newNode(server, m, firstSettings())
	s.must(err)
	defer func() { s.must(fresh.close()) }()
	s.must(fresh.start(ctx))
	s.must(fresh.follows(ctx, "pod1", followLimit))
	s.must(s.needsNoMoreThan(fresh))
}

func (s *neighbourhood) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v\n%s", err, s.story())
	}
}

// settle makes the objects of the innocent tenants.
func (s *neighbourhood) settle() error {
	population := &population{server: s.api, services: map[int]service{}}
	for i := range innocents {
		in := func(svc service) service {
			svc.Namespace = fmt.Sprint("tenant-", i+1)
			return svc
		}
		number := steady(i)
		population.services[number] = in(newService(number, []string{"pod1", "pod2", "remote1"}, balanced(number, alsoSCTP)))
		meter := in(newService(number+innocents, []string{"pod1"}, unchanged))
		population.services[number+innocents] = meter
		s.meters = append(s.meters, meter)
	}
	population.services[beacon] = newService(beacon, []string{"pod1"}, unchanged)
	return population.set(func(map[int]service) {})
}

func alsoSCTP(s *corev1.Service) {
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "s", Protocol: corev1.ProtocolSCTP, Port: 80})
}

// steady is the number of the Service of an innocent tenant that clients connect to.
func steady(tenant int) int { return 1 + tenant }

// addInnocents adds the clients of innocent tenants.
func addInnocents(t *traffic) {
	for i := range innocents {
		for family := range families {
			inside, outside := netip.AddrPortFrom(clusterIP(steady(i))[family], 80), netip.AddrPortFrom(externalIP(steady(i))[family], 80)
			for _, flow := range []lab.Flow{
				{From: "pod3", Protocol: lab.TCP, To: inside}, {From: "client", Protocol: lab.TCP, To: outside},
				{From: "node1", Protocol: lab.UDP, To: inside}, {From: "pod3", Protocol: lab.SCTP, To: inside},
			} {
				t.fresh("innocent", flow, lab.Answered)
				t.held("innocent", flow)
			}
		}
	}
}

// hostility is what a tenant does to everybody.
type hostility struct {
	name       string
	long       bool // only in long runs
	services   int
	begin, end func(*fakeapi.Server) error
	// flap changes something once more, or sends.
	flap func(s *neighbourhood, i int) error
}

// flapPeriod is that of a Service that flaps ten times a second.
const flapPeriod = 100 * time.Millisecond

func hostilities() []hostility {
	return []hostility{
		flapping("a Maglev Service with all lookup tables of a namespace flaps", false, 1, plan.MaxMaglevTables, 2, maglev),
		flapping("a Service of 64 ports flaps", true, 1, 64, 2, unchanged),
		flapping("a Service of 1,000 endpoints flaps", false, 1, 4, 1000, unchanged),
		flapping("a Maglev Service of 100 endpoints flaps", true, 1, 1, 100, maglev),
		flapping("a Service of 64 ports of SCTP flaps", true, 1, 64, 2, onlySCTP),
		flapping("twenty Services of 64 ports flap", true, 20, 64, 2, unchanged),
		flapping("ten Maglev Services flap", true, 10, plan.MaxMaglevTables/10, 2, maglev),
		flapping("ten Maglev Services of too many ports flap", true, 10, 2*plan.MaxMaglevTables, 2, maglev), // they get random
		flapping("a Service of 1,000 endpoints with affinity flaps", true, 1, 4, 1000, withAffinity),
		weighing("1,000 endpoints of weights without a common divisor flap", true, 1000),
		replacing("all 1,000 endpoints of a Service flap", true, 1000),
		ranging("1,000 source ranges flap", false, 1000),
		flooding("Services come and go", false, 50),
		connecting("1,000 connections a second to a silent endpoint", false, false),
		connecting("1,000 connections a second to a ring", true, true),
	}
}

func maglev(s *corev1.Service) { s.Annotations = map[string]string{"sluice/algorithm": "maglev"} }

func onlySCTP(s *corev1.Service) {
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Protocol = corev1.ProtocolSCTP
	}
}

const hostileNamespace = "hostile"

// hostileService is a Service of the hostile tenant.
func hostileService(number, ports int, change func(*corev1.Service)) *corev1.Service {
	ip := netip.AddrFrom4([4]byte{10, 96, byte(1 + number/250), byte(1 + number%250)}).String()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostileNamespace, Name: fmt.Sprint("h", number)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: families[:1],
		},
	}
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(1 + i)})
	}
	change(s)
	return s
}

// maxInSlice is how many endpoints the controller puts into a slice.
const maxInSlice = 100

// hostileSlice is one of the slices of such a Service. Its first endpoint changes with the turn.
func hostileSlice(s *corev1.Service, index, endpoints, turn int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint(s.Name, "-", index),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range s.Spec.Ports {
		port := 8000 + int32(i)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &s.Spec.Ports[i].Name, Protocol: &s.Spec.Ports[i].Protocol, Port: &port})
	}
	elsewhere := "node2"
	for i := range endpoints {
		ip := netip.AddrFrom4([4]byte{10, 245, byte(index), byte(1 + i)})
		if i == 0 {
			ip = netip.AddrFrom4([4]byte{10, 246, byte(index), byte(1 + turn%250)})
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip.String()}, NodeName: &elsewhere})
	}
	return slice
}

// flapping are Services of which one endpoint is replaced all the time.
func flapping(name string, long bool, services, ports, endpoints int, change func(*corev1.Service)) hostility {
	var all []fakeapi.Object
	var owners []*corev1.Service
	for number := range services {
		s := hostileService(number, ports, change)
		owners = append(owners, s)
		all = append(all, s)
		for index := 0; index*maxInSlice < endpoints; index++ {
			all = append(all, hostileSlice(s, index, min(maxInSlice, endpoints-index*maxInSlice), 0))
		}
	}
	return hostility{name, long, services,
		func(api *fakeapi.Server) error { return api.Put(all...) },
		func(api *fakeapi.Server) error { return api.Delete(all...) },
		func(s *neighbourhood, i int) error {
			for _, owner := range owners {
				if err := s.api.Put(hostileSlice(owner, 0, min(maxInSlice, endpoints), i)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// replacing is a Service of which all endpoints are replaced, once a second, and one in between: it is
// very large, and the next change comes before the last one is in force.
func replacing(name string, long bool, endpoints int) hostility {
	s := hostileService(0, 1, unchanged)
	slices := func(turn int) (all []fakeapi.Object) {
		for index := 0; index*maxInSlice < endpoints; index++ {
			slice := hostileSlice(s, index, maxInSlice, turn)
			for i := range slice.Endpoints {
				ip := netip.MustParseAddr(slice.Endpoints[i].Addresses[0]).As4()
				ip[0] += byte(turn / 10 % 2)
				slice.Endpoints[i].Addresses[0] = netip.AddrFrom4(ip).String()
			}
			all = append(all, slice)
		}
		return all
	}
	return hostility{name, long, 1,
		func(api *fakeapi.Server) error { return api.Put(append(slices(0), s)...) },
		func(api *fakeapi.Server) error { return api.Delete(append(slices(0), s)...) },
		func(s *neighbourhood, i int) error {
			if i%10 == 0 {
				return s.api.Put(slices(i)...)
			}
			return s.api.Put(slices(i)[0])
		},
	}
}

// weighing is a Service whose endpoints have weights that have nothing in common, one of which changes all
// the time.
func weighing(name string, long bool, endpoints int) hostility {
	s := hostileService(0, 1, unchanged)
	slice := func(index, turn int) *discoveryv1.EndpointSlice {
		slice := hostileSlice(s, index, maxInSlice, 0)
		slice.Annotations = map[string]string{"sluice/weight": fmt.Sprint(65521 - 7*index - turn%250)}
		return slice
	}
	all := []fakeapi.Object{s}
	for index := range endpoints / maxInSlice {
		all = append(all, slice(index, 0))
	}
	return hostility{name, long, 1,
		func(api *fakeapi.Server) error { return api.Put(all...) },
		func(api *fakeapi.Server) error { return api.Delete(all...) },
		func(s *neighbourhood, i int) error { return s.api.Put(slice(0, i)) },
	}
}

// ranging is a Service whose many source ranges change all the time.
func ranging(name string, long bool, ranges int) hostility {
	service := func(turn int) *corev1.Service {
		return hostileService(0, 4, func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18.9.9"}}
			for i := range ranges {
				third := i % 250
				if i == 0 {
					third = 250 + turn%5
				}
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("100.%d.%d.0/24", 64+i/250, third))
			}
		})
	}
	slice := hostileSlice(service(0), 0, 2, 0)
	return hostility{name, long, 1,
		func(api *fakeapi.Server) error { return api.Put(service(0), slice) },
		func(api *fakeapi.Server) error { return api.Delete(service(0), slice) },
		func(s *neighbourhood, i int) error { return s.api.Put(service(i)) },
	}
}

// flooding are Services that are added and deleted, many at a time.
func flooding(name string, long bool, services int) hostility {
	var all []fakeapi.Object
	for number := range services {
		s := hostileService(number, 2, unchanged)
		all = append(all, s, hostileSlice(s, 0, 2, 0))
	}
	return hostility{name, long, services,
		func(*fakeapi.Server) error { return nil },
		func(api *fakeapi.Server) error { return api.Delete(all...) },
		func(s *neighbourhood, i int) error {
			if i%2 == 0 {
				return s.api.Put(all...)
			}
			return s.api.Delete(all...)
		},
	}
}

// connecting is a Service to which a pod of the tenant opens connections, very many of them, by its
// ClusterIPs and its node port. Its endpoints are elsewhere and silent, or, in a ring, the node port
// itself.
func connecting(name string, long bool, ring bool) hostility {
	const port = 32001
	node := pair{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
	nowhere := pair{netip.MustParseAddr("10.246.0.1"), netip.MustParseAddr("fd00:10:246::1")}
	s := hostileService(0, 1, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = port
		s.Spec.ClusterIPs, s.Spec.IPFamilies = append(s.Spec.ClusterIPs, "fd00:10:96:1::1"), families
	})
	all := []fakeapi.Object{s}
	var to []netip.AddrPort
	for f, family := range families {
		slice := hostileSlice(s, f, 1, 0)
		slice.AddressType = discoveryv1.AddressType(family)
		slice.Endpoints[0].Addresses[0] = nowhere[f].String()
		if ring {
			*slice.Ports[0].Port = port
			slice.Endpoints[0].Addresses[0] = node[f].String()
		}
		all = append(all, slice)
		to = append(to, netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[f]), uint16(s.Spec.Ports[0].Port)), netip.AddrPortFrom(node[f], port))
	}
	return hostility{name, long, 1,
		func(api *fakeapi.Server) error { return api.Put(all...) },
		func(api *fakeapi.Server) error { return api.Delete(all...) },
		func(s *neighbourhood, _ int) error {
			host, err := s.lab.Host("pod2")
			if err != nil {
				return err
			}
			return host.Do(func() error { return beginConnections(to, 100) })
		},
	}
}

// beginConnections sends the first packets of so many connections, and forgets them.
func beginConnections(to []netip.AddrPort, number int) error {
	for i := range number {
		at := to[i%len(to)]
		family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())})
		if at.Addr().Is4() {
			family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, address)
		if err := unix.Close(fd); err != nil {
			return err
		}
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect to %v: %w", at, err)
		}
	}
	return nil
}

// phase measures changes of innocent tenants for a while, beside what the hostile one does.
func (s *neighbourhood) phase(name string, flap func(*neighbourhood, int) error) {
	s.Helper()
	s.note("the hostile tenant does: %s", name)
	length := testkit.Extent(0, 2500*time.Millisecond, 5*time.Second)
	if longRun() {
		length = 10 * time.Second
	}
	var attack sync.WaitGroup
	stop := make(chan struct{})
	if flap != nil {
		attack.Go(func() {
			tick := time.NewTicker(flapPeriod)
			defer tick.Stop()
			for i := 1; ; i++ {
				if err := flap(s, i); err != nil {
					s.Error(err)
					return
				}
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	for end := time.Now().Add(length); time.Now().Before(end) && !s.Failed(); {
		took, err := s.change()
		if err != nil {
			s.Errorf("beside %s: %v\n%s", name, err, s.story())
			break
		}
		s.took[name] = append(s.took[name], took)
		time.Sleep(upTo(s.rng, 30*time.Millisecond)) // so that changes meet flaps at any time
	}
	close(stop)
	attack.Wait()
}

// change moves the endpoint of a meter, and returns how long it takes until clients get there.
func (s *neighbourhood) change() (time.Duration, error) {
	turn := s.changes/len(s.meters) + 2 // at first both families are on pod1
	meter, family := s.meters[s.changes%len(s.meters)], turn%2
	meter.endpoints = []string{[]string{"pod1", "pod2"}[turn/2%2]}
	s.changes++
	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.AddrPortFrom(netip.MustParseAddr(meter.Spec.ClusterIPs[family]), 80)}
	began := time.Now()
	if err := s.api.Put(meter.slice(family, discoveryv1.AddressType(families[family]))); err != nil {
		return 0, err
	}
	var took time.Duration
	ctx, cancel := testkit.WithTimeout(s.ctx, followLimit)
	defer cancel()
	for {
		last := s.lab.Connect(ctx, flow)
		if took = time.Since(began); last.Kind == lab.Answered && last.By == meter.endpoints[0] {
			return took, nil
		}
		if ctx.Err() != nil || last.Kind != lab.Answered {
			return took, fmt.Errorf("%v after %v: %v, and not by %s", flow, took, last, meter.endpoints[0])
		}
	}
}

// calm waits until the proxy has nothing left to do.
func (s *neighbourhood) calm() error {
	const enough = 5
	inTime := 0
	return testkit.Poll(followLimit, func() error {
		took, err := s.change()
		if err != nil || took > fairTime {
			inTime = 0
			return fmt.Errorf("a change takes %v: %w", took, err)
		}
		if inTime++; inTime < enough {
			return errors.New("changes have begun to be in time")
		}
		return nil
	})
}

// judge evaluates what the innocent felt. It is told what the hostile tenant did with one Service.
func (s *neighbourhood) judge(single map[string]bool) {
	s.Helper()
	s.must(s.traffic.drain())
	made := 0
	var lost failures
	for _, p := range s.traffic.probes {
		for _, a := range p.take() {
			if made++; a.lost {
				lost.add("%s  %v: %s, known %s", s.clock(a.sent), p, a.what, s.clock(a.done))
			}
		}
	}
	table, slow := s.judgeTimes(single)
	s.Logf("seed %d, %s mode: %d of %d connections, datagrams and questions of innocent tenants were lost\n%s", *seed, s.mode, len(lost), made, table)
	if len(lost) > 0 {
		s.Errorf("lost:\n%s\n%s", strings.Join(lost.first(), "\n"), s.story())
	}
	if len(slow) > 0 {
		s.Errorf("too slow:\n%s", strings.Join(slow, "\n"))
	}
}

// judgeTimes returns how long changes took, and which of that is too long. A short run has too
// few of them, and may be beside other tests: there a phase must be both slower than beside a
// quiet tenant and slow.
func (s *neighbourhood) judgeTimes(single map[string]bool) (table string, slow []string) {
	var b strings.Builder
	quiet := slices.Sorted(slices.Values(s.took[still]))
	limit := testkit.Scaled(fairTime)
	fmt.Fprintf(&b, "changes of innocent tenants: number, median, p99, longest, and how many times the p99 without (at most %d beside one Service, and always at most %v)\n", fairRatio, limit)
	for _, name := range sortedKeys(s.took) {
		all := slices.Sorted(slices.Values(s.took[name]))
		p99 := percentile(all, 99)
		ratio := float64(p99) / float64(percentile(quiet, 99))
		line := fmt.Sprintf("  %6d %9v %9v %9v %6.1f  beside: %s", len(all), round(percentile(all, 50)), round(p99), round(all[len(all)-1]), ratio, name)
		fmt.Fprintln(&b, line)
		late, more := p99 > limit, ratio > fairRatio
		if name != still && (late && more || longRun() && (late || more && single[name])) {
			slow = append(slow, line)
		}
	}
	return b.String(), slow
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
