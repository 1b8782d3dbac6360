//go:build linux

package lab_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sluice/test/lab"
)

// countedManifests are Services that serve, and that refuse for various reasons.
var countedManifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.1], nodeName: node1}, {addresses: [10.244.1.2], nodeName: node1, conditions: {ready: false}}]
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: default}
spec:
  clusterIP: 10.96.0.11
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: balanced, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.12
  externalTrafficPolicy: Cluster
  allocateLoadBalancerNodePorts: false
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{name: http, port: 80, targetPort: 8080}]
status: {loadBalancer: {ingress: [{ip: 198.18.0.12}]}}
` + lab.EndpointSlice("IPv4", "balanced", "http", "pod1") + `---
apiVersion: v1
kind: Service
metadata: {name: elsewhere, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.13
  externalTrafficPolicy: Local
  allocateLoadBalancerNodePorts: false
  ports: [{name: http, port: 80, targetPort: 8080}]
status: {loadBalancer: {ingress: [{ip: 198.18.0.13}]}}
` + lab.EndpointSlice("IPv4", "elsewhere", "http", "remote1") + `---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
`

const filledManifests = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: empty-1, namespace: default, labels: {kubernetes.io/service-name: empty}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.2], nodeName: node1}]
`

// meter reads the metrics of the proxy on node1.
type meter struct {
	t *testing.T
	l *lab.Lab
}

// value returns the value of one series, 0 if there is none.
func (m meter) value(series string) float64 {
	m.t.Helper()
	v, _ := m.find(series)
	return v
}

// find returns the value of one series, if there is one.
func (m meter) find(series string) (value float64, found bool) {
	m.t.Helper()
	page, err := m.l.Get(lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}, "/metrics")
	if err != nil {
		return -1, false // it does not serve yet
	}
	for line := range strings.Lines(page.Text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				m.t.Fatal(err)
			}
			return v, true
		}
	}
	return 0, false
}

func (m meter) connections(service string) float64 {
	m.t.Helper()
	return m.value(connectionsOf(service))
}

func connectionsOf(service string) string {
	return `sluice_service_connections_total{namespace="default",service="` + service + `",port="http",protocol="TCP"}`
}

func (m meter) refused(service, reason string) float64 {
	m.t.Helper()
	return m.value(`sluice_service_refused_packets_total{namespace="default",service="` + service + `",reason="` + reason + `"}`)
}

func (m meter) refusedAll(reason string) float64 {
	m.t.Helper()
	return m.value(`sluice_refused_packets_total{reason="` + reason + `"}`)
}

// connect connects that many times, always with that outcome.
func (m meter) connect(times int, from, to string, want lab.Kind) {
	m.t.Helper()
	f := lab.Flow{From: from, Protocol: lab.TCP, To: netip.MustParseAddrPort(to)}
	if want == lab.Dropped {
		f.Timeout = lab.ShortTimeout
	}
	for range times {
		if o := m.l.Connect(m.t.Context(), f); o.Kind != want {
			m.t.Fatalf("%v is %v, want %s", f, o, want)
		}
	}
}

// reaches waits until a value is at least that: a packet may be sent again.
func (m meter) reaches(what string, value func() float64, least float64) {
	m.t.Helper()
	var last float64
	eventually(m.t, func() bool { last = value(); return last >= least })
	m.t.Logf("%s: %g", what, last)
}

func TestServiceTrafficIsCountedByVerdict(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	m := meter{t, l}
	dir := t.TempDir()
	write(t, dir, "counted.yaml", countedManifests, 0)
	start := func() *lab.Proxy {
		p := startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
		settle(t, p, dir, 0)
		// The zero exists before the first packet.
		m.reaches("refused at first", func() float64 { return m.refusedAll("no-endpoints") }, 0)
		for _, service := range []string{"web", "empty", "balanced", "elsewhere"} {
			eventually(t, func() bool { _, found := m.find(connectionsOf(service)); return found })
		}
		return p
	}
	p := start()

	m.connect(5, "pod3", "10.96.0.10:80", lab.Answered)
	m.connect(4, "pod3", "10.96.0.11:80", lab.Refused)
	m.connect(3, "client2", "198.18.0.12:80", lab.Answered)
	m.connect(2, "client", "198.18.0.12:80", lab.Dropped)
	m.connect(2, "client", "198.18.0.13:80", lab.Dropped)
	m.connect(2, "pod3", "10.96.0.10:81", lab.Refused)
	m.connect(2, "pod3", "10.96.77.77:80", lab.Dropped)
	m.reaches("unallocated address", func() float64 { return m.refusedAll("unused-address") }, 2)
	m.reaches("unknown port", func() float64 { return m.refusedAll("no-such-port") }, 2)
	m.reaches("no endpoints", func() float64 { return m.refused("empty", "no-endpoints") }, 4)
	m.reaches("source range", func() float64 { return m.refused("balanced", "source-ranges") }, 2)
	m.reaches("no local endpoint", func() float64 { return m.refused("elsewhere", "no-local-endpoints") }, 2)
	wantConnections := func(when string, want map[string]float64) {
		t.Helper()
		for service, n := range want {
			if got := m.connections(service); got != n {
				t.Errorf("%s: %g connections of %s, want %g", when, got, service, n)
			}
		}
	}
	wantConnections("at first", map[string]float64{"web": 5, "empty": 0, "balanced": 3, "elsewhere": 0})
	if used := m.value(`sluice_service_endpoints{namespace="default",service="web",state="used"}`); used != 1 {
		t.Errorf("%g endpoints of web are in use, want 1", used)
	}

	// A Service that gets its first endpoint: refused packets stay counted.
	before := m.refused("empty", "no-endpoints")
	mark := p.Log().Len()
	write(t, dir, "filled.yaml", filledManifests, 0)
	settle(t, p, dir, mark)
	m.connect(3, "pod3", "10.96.0.11:80", lab.Answered)
	m.reaches("connections after an update", func() float64 { return m.connections("empty") }, 3)
	wantConnections("after an update", map[string]float64{"web": 5, "empty": 3, "balanced": 3, "elsewhere": 0})
	if after := m.refused("empty", "no-endpoints"); after != before {
		t.Errorf("%g refused before an endpoint came, %g after", before, after)
	}

	// Another process starts at zero, though the kernel keeps counting.
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	start()
	wantConnections("after a restart", map[string]float64{"web": 0, "empty": 0})
	m.connect(2, "pod3", "10.96.0.10:80", lab.Answered)
	m.reaches("connections after a restart", func() float64 { return m.connections("web") }, 2)
	wantConnections("after a restart", map[string]float64{"web": 2, "empty": 0, "balanced": 0, "elsewhere": 0})
}

func TestServiceMetricsCanBeLimited(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, flag  string
		own, shared float64
	}{
		{"bounded", "--service-metrics-limit=1", 1, 3},
		{"switched off", "--service-metrics=false", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			m := meter{t, l}
			dir := t.TempDir()
			write(t, dir, "counted.yaml", countedManifests, 0)
			settle(t, startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: []string{tt.flag}}), dir, 0)
			m.reaches("frontends", func() float64 { return m.value(`sluice_frontends{status="programmed"}`) }, 6)
			eventually(t, func() bool {
				return m.value(`sluice_services{series="own"}`) == tt.own && m.value(`sluice_services{series="shared"}`) == tt.shared
			})
		})
	}
}

// Without metrics of single Services nothing in the kernel counts connections. Switching that on and off replaces the
// table, under traffic, and neither a connection nor a client's endpoint is lost.
func TestCountersAreSwitchedUnderTraffic(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	m := meter{t, l}
	dir := t.TempDir()
	sticky := strings.NewReplacer("name: good", "name: sticky", "10.96.0.1", "10.96.0.20", "spec:\n", "spec:\n  sessionAffinity: ClientIP\n").Replace(goodManifests)
	service, _, _ := strings.Cut(sticky, "---")
	write(t, dir, "counted.yaml", countedManifests, 0)
	write(t, dir, "sticky.yaml", service+lab.EndpointSlice("IPv4", "sticky", "", "pod1", "pod2", "remote1"), 0)
	start := func(flags ...string) *lab.Proxy {
		t.Helper()
		p := startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: append(flags, "--cluster-cidr=10.244.0.0/16")})
		settle(t, p, dir, 0)
		m.reaches("frontends", func() float64 { return m.value(`sluice_frontends{status="programmed"}`) }, 7)
		return p
	}
	kept := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.20:80")}
	p := start()
	first := l.Connect(t.Context(), kept)
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{kept, {From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.10:80")}},
		lab.TrafficOptions{Rate: 50, Sessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, counted := range []bool{false, false, true} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		p = start("--service-metrics=" + strconv.FormatBool(counted))
		if rules := ownTables(t, l); strings.Contains(rules, "counter") != counted {
			t.Errorf("with --service-metrics=%t, counters: %t, in\n%s", counted, !counted, rules)
		}
		for range 5 {
			if o := l.Connect(t.Context(), kept); o.By != first.By {
				t.Errorf("with --service-metrics=%t a client with session affinity got %v, and %v before", counted, o, first)
			}
		}
	}
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}
	m.connect(3, "pod3", "10.96.0.10:80", lab.Answered)
	m.reaches("connections", func() float64 { return m.connections("web") }, 3)
}

// ownTables lists the tables of nftables mode on node1.
func ownTables(t *testing.T, l *lab.Lab) (text string) {
	t.Helper()
	for _, table := range strings.Split("\n"+ruleset(t, l), "\ntable ") {
		if _, rest, _ := strings.Cut(table, " "); strings.HasPrefix(rest, "sluice") {
			text += table
		}
	}
	return text
}
