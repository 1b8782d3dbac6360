//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/observe/history"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// failoverService has six endpoints, of which two are on node2, in each family.
func failoverService(annotations, spec string) string {
	text := fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: default
  annotations: {%s}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  clusterIPs: [10.96.0.1, "fd00:10:96::1"]
  externalIPs: [198.18.0.1, "2001:db8:18::1"]
  ports: [{name: web, port: 80, nodePort: 30080}]
%s`, annotations, spec)
	for _, f := range []struct {
		family, node1, node2 string
	}{
		{"IPv4", "10.244.1.", "10.244.2."},
		{"IPv6", "fd00:10:244:1::", "fd00:10:244:2::"},
	} {
		for i, port := range lab.EchoPorts[:2] {
			text += fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%s-%d, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %s
ports: [{name: web, port: %d}]
endpoints:
- {addresses: ["%s1"], nodeName: node1, conditions: {ready: true}}
- {addresses: ["%s2"], nodeName: node1, conditions: {ready: true}}
`, strings.ToLower(f.family), i, f.family, port, f.node1, f.node1)
			if i == 0 {
				text += fmt.Sprintf(`- {addresses: ["%s1"], nodeName: node2, conditions: {ready: true}}
- {addresses: ["%s2"], nodeName: node2, conditions: {ready: true}}
`, f.node2, f.node2)
			}
		}
	}
	return text
}

// stream opens connections one after the other, each in its own time.
type stream struct {
	l     *lab.Lab
	flows []lab.Flow
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

// call is a connection of a stream.
type call struct {
	at   time.Time // when it began
	took time.Duration
	lab.Outcome
}

func newStream(t *testing.T, l *lab.Lab, perSecond int, flows ...lab.Flow) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{l: l, flows: flows, stop: cancel}
	s.ended.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			flow := flows[i%len(flows)]
			s.ended.Go(func() {
				at := time.Now()
				o := l.Connect(t.Context(), flow)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.calls = append(s.calls, call{at, time.Since(at), o})
			})
			<-tick.C
		}
	})
	t.Cleanup(s.end)
	return s
}

// end waits for the last connection.
func (s *stream) end() {
	s.stop()
	s.ended.Wait()
}

// between returns the connections that began in a time.
func (s *stream) between(from, to time.Time) (out []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.at.After(from) && c.at.Before(to) {
			out = append(out, c)
		}
	}
	return out
}

// by counts the connections that hosts answered.
func by(calls []call, hosts ...string) (n int) {
	for _, c := range calls {
		if c.Kind == lab.Answered && slices.Contains(hosts, c.By) {
			n++
		}
	}
	return n
}

// on runs a command on a host.
func on(t *testing.T, l *lab.Lab, host string, args ...string) string {
	t.Helper()
	h, err := l.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.Run(t.Context(), lab.Command{Args: args})
	if err != nil {
		t.Fatal(err, out)
	}
	return out
}

// drop makes a host drop what nft(8) matches, without an answer.
func drop(t *testing.T, l *lab.Lab, host, match string) (undo func()) {
	t.Helper()
	on(t, l, host, "nft", "add table inet dark; add chain inet dark in { type filter hook prerouting priority -400; }; add rule inet dark in "+match+" drop")
	return func() { on(t, l, host, "nft", "delete table inet dark") }
}

// webFlows reach the Service from pods and from outside, in both families, at all kinds of addresses.
func webFlows(timeout time.Duration) []lab.Flow {
	flow := func(from, to string) lab.Flow {
		return lab.Flow{From: from, Protocol: lab.TCP, To: netip.MustParseAddrPort(to), Timeout: timeout}
	}
	return []lab.Flow{
		flow("pod3", "10.96.0.1:80"), flow("pod3", "[fd00:10:96::1]:80"), flow("client", "198.18.0.1:80"),
		flow("client", "192.0.2.10:30080"), flow("client2", "[2001:db8:18::1]:80"), flow("client2", "[2001:db8::10]:30080"),
		flow("pod1", "10.96.0.1:80"), flow("pod2", "[fd00:10:96::1]:80"), flow("node1", "10.96.0.1:80"),
	}
}

// inModesThatNotice runs a test in each mode that notices which endpoints do not answer.
func inModesThatNotice(t *testing.T, test func(t *testing.T, mode string)) {
	inEachMode(t, func(t *testing.T, mode string) {
		if strings.HasPrefix(mode, "iptables") {
			t.Skip("the mode does not notice, which TestWhoIsLeftOut shows")
		}
		test(t, mode)
	})
}

// failover is a Service with two of six endpoints on a node that can go dark.
type failover struct {
	*testing.T
	lab   *lab.Lab
	mode  string
	dir   string
	a     *asker
	flags []string
	proxy *lab.Proxy
}

func newFailover(t *testing.T, mode, annotations, spec string) *failover {
	f := &failover{T: t, lab: lab.Start(t), mode: mode, dir: t.TempDir()}
	write(t, f.dir, "web.yaml", failoverService(annotations, spec), 0)
	a, socket := newAsker(t, f.lab)
	f.a, f.flags = a, []string{socket, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48"}
	f.start()
	return f
}

func (f *failover) start() {
	f.proxy = startProxy(f.T, f.lab, f.mode, lab.ProxyOptions{Manifests: f.dir, Flags: f.flags})
	settle(f.T, f.proxy, f.dir, 0)
	f.a.ready()
}

func (f *failover) kill() {
	if err := f.proxy.Kill(); err != nil {
		f.Fatal(err)
	}
	f.start()
}

// repeated counts connections that had to repeat their first packet.
func repeated(calls []call) (n int) {
	for _, c := range calls {
		if c.Kind != lab.Answered || c.took > 900*time.Millisecond {
			n++
		}
	}
	return n
}

var trialAt = regexp.MustCompile(`next trial (?:in (\d+) s|now)`)

// lastTrial returns when the last of the endpoints that are left out is tried next, as explain says.
func lastTrial(t *testing.T, a *asker, service string) (last time.Time) {
	t.Helper()
	out, _, _ := a.ask("explain", service)
	for _, found := range trialAt.FindAllStringSubmatch(out, -1) {
		seconds, _ := strconv.Atoi(found[1])
		if at := time.Now().Add(time.Duration(seconds) * time.Second); at.After(last) {
			last = at
		}
	}
	return last
}

// A node with two of six endpoints loses power, and the API says nothing of it.
func TestDeadNodeCostsASecond(t *testing.T) {
	t.Parallel()
	perSecond, outage := testkit.Extent(40, 60, 200), testkit.Extent[time.Duration](6, 8, 60)*time.Second
	inModesThatNotice(t, func(t *testing.T, mode string) {
		for _, variant := range []struct {
			name, annotations, spec string
			limit                   time.Duration // for a connection: packets are repeated after 1, 2 or 3, 4 and 7 seconds
		}{
			{"plain", "", "", 3300 * time.Millisecond},
			{"killed", "", "", 7300 * time.Millisecond}, // it has to learn it again
			{"policy Local", "", "  externalTrafficPolicy: Local", 3300 * time.Millisecond},
			{"maglev", ", sluice/algorithm: maglev", "", 3300 * time.Millisecond},
			{"affinity", "", "  sessionAffinity: ClientIP", 3300 * time.Millisecond},
		} {
			if testkit.Short() && variant.name != "plain" || !testkit.Full() && mode != "nftables" && variant.name != "plain" {
				continue
			}
			if mode == "userspace" && variant.name == "killed" {
				continue // nobody accepts connections until the next process does
			}
			t.Run(variant.name, func(t *testing.T) {
				f := newFailover(t, mode, `sluice/eject: "true"`+variant.annotations, variant.spec)
				s := newStream(t, f.lab, perSecond, webFlows(20*time.Second)...)
				time.Sleep(2 * time.Second)

				undo := drop(t, f.lab, "node2", "meta l4proto tcp")
				dark := time.Now()
				learned := dark
				if variant.name == "killed" { // it knows nothing of the node then
					time.Sleep(2 * time.Second)
					f.kill()
					learned = time.Now()
				}
				if variant.name == "plain" { // else it may be that no client has an endpoint on the node
					testkit.Eventually(t, func() error {
						if n := ejected(t, f.a); n != 4 {
							return fmt.Errorf("status counts %d ejected endpoints", n)
						}
						return nil
					})
				}
				settled := learned.Add(testkit.Scaled(3 * time.Second))
				time.Sleep(time.Until(settled.Add(outage - 3*time.Second)))
				light, trial := time.Now(), lastTrial(t, f.a, "default/web")
				undo()
				if err := testkit.Poll(time.Until(trial)+10*time.Second, func() error {
					if n := ejected(t, f.a); n != 0 {
						return fmt.Errorf("%d endpoints are still ejected, which were to be tried at %v", n, trial)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
				back := time.Now()
				time.Sleep(2 * time.Second)
				s.end()
				worst := time.Duration(0)
				// Those that the node accepted before are established, and wait for it.
				for _, c := range s.between(dark, time.Now()) {
					if c.Kind != lab.Answered {
						t.Errorf("a connection %v after the node was lost is %v, after %v", c.at.Sub(dark), c.Outcome, c.took)
					}
					worst = max(worst, c.took)
				}
				later, after := s.between(settled, light), s.between(back, time.Now())
				t.Logf("the longest took %v, of %d; after 3 s %d of %d met the dead node; it is back %v after it was, with %d of %d",
					worst, len(s.between(dark, light)), repeated(later), len(later), back.Sub(light), by(after, "remote1", "remote2"), len(after))
				if limit := testkit.Scaled(variant.limit); worst > limit {
					t.Errorf("a connection took %v, more than %v", worst, limit)
				}
				most := len(later) / 100
				if !testkit.Full() { // in a short time a trial, of the node's third of half a second, is more than that
					most += perSecond * int(testkit.Scaled(500*time.Millisecond)/time.Millisecond) / 3000
				}
				if repeated(later) > most {
					t.Errorf("after 3 s, %d of %d connections met the dead node, more than %d", repeated(later), len(later), most)
				}
				if n := by(after, "remote1", "remote2"); 8*n < len(after) && variant.name == "plain" {
					t.Errorf("%d of %d connections reach the node that is back", n, len(after))
				}
			})
		}
		t.Run("off", func(t *testing.T) {
			f := newFailover(t, mode, `sluice/eject: "false"`, "")
			drop(t, f.lab, "node2", "meta l4proto tcp")
			s := newStream(t, f.lab, perSecond, webFlows(3300*time.Millisecond)...)
			time.Sleep(testkit.Extent[time.Duration](3, 3, 60) * time.Second)
			s.end()
			calls := s.between(time.Time{}, time.Now())
			t.Logf("%d of %d connections met the dead node", repeated(calls), len(calls))
			// In userspace mode the proxy tries another endpoint after a quarter of a second.
			if n := repeated(calls); mode != "userspace" && (6*n < len(calls) || 2*n > len(calls)) {
				t.Errorf("%d of %d connections met the dead node, not a third", n, len(calls))
			}
		})
	})
}

// A process dies, and its pod answers for it with resets: after two seconds no client sees them.
func TestRefusingPod(t *testing.T) {
	t.Parallel()
	all := webFlows(lab.DefaultTimeout)
	inModesThatNotice(t, func(t *testing.T, mode string) {
		for _, variant := range []struct {
			name, annotations, spec string
			flows                   []lab.Flow // of one family: that of an endpoint is one of its own
			meets                   bool       // whatever endpoints clients are led to, some meet the pod
		}{
			{"plain", "", "", all[:1], true},
			{"IPv6", "", "", all[1:2], true},
			{"policy Local", "", "  externalTrafficPolicy: Local", all[2:4], true},
			{"maglev", ", sluice/algorithm: maglev", "", []lab.Flow{all[0], all[2], all[3], all[6], all[8]}, false},
			{"affinity", "", "  sessionAffinity: ClientIP", []lab.Flow{all[0], all[2], all[3], all[6], all[8]}, false},
		} {
			if !testkit.Full() && variant.name != "plain" && (mode != "nftables" || variant.name != "IPv6" || testing.Short()) {
				continue
			}
			t.Run(variant.name, func(t *testing.T) {
				f := newFailover(t, mode, `sluice/eject: "true"`+variant.annotations, variant.spec)
				f.refuse(40*len(variant.flows), variant.meets, variant.flows...)
			})
		}
	})
}

// refuse has a pod refuse for some seconds.
func (f *failover) refuse(perSecond int, meets bool, flows ...lab.Flow) {
	s := newStream(f.T, f.lab, perSecond, flows...)
	time.Sleep(2 * time.Second)
	const dead = "add table inet dead; add chain inet dead in { type filter hook input priority 0; }; add rule inet dead in tcp dport 8080 reject with tcp reset"
	on(f.T, f.lab, "pod2", "nft", dead)
	died := time.Now()
	if meets {
		testkit.Eventually(f.T, func() error {
			if n := ejected(f.T, f.a); n != 1 {
				return fmt.Errorf("%d endpoints are ejected", n)
			}
			return nil
		})
	}
	time.Sleep(3 * time.Second)
	until := time.Now()
	on(f.T, f.lab, "pod2", "nft", "delete table inet dead")
	if err := testkit.Poll(time.Until(lastTrial(f.T, f.a, "default/web"))+10*time.Second, func() error {
		if n := ejected(f.T, f.a); n != 0 {
			return fmt.Errorf("%d endpoints are ejected", n)
		}
		return nil
	}); err != nil {
		f.Error(err)
	}
	s.end()
	refused := func(from time.Time) (n int, last time.Duration) {
		for _, c := range s.between(from, until) {
			if c.Kind == lab.Refused {
				n, last = n+1, max(last, c.at.Sub(died))
			}
		}
		return n, last
	}
	n, last := refused(died)
	f.Logf("%d connections were refused, the last %v after the process died", n, last)
	if n, last := refused(died.Add(testkit.Scaled(2 * time.Second))); n > 0 {
		f.Errorf("%d connections were refused, the last %v after the process died", n, last)
	}
}

// plainService has one port and endpoints at ports of hosts.
func plainService(name, ip, protocol, annotations string, endpoints ...string) string {
	text := fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {%s}}
spec: {clusterIP: %q, ports: [{port: 80, protocol: %s}]}
`, name, annotations, ip, protocol)
	for i, e := range endpoints {
		at := netip.MustParseAddrPort(e)
		family := "IPv4"
		if at.Addr().Is6() {
			family = "IPv6"
		}
		text += fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%d, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{port: %d, protocol: %s}]
endpoints: [{addresses: [%q], conditions: {ready: true}}]
`, name, i, name, family, at.Port(), protocol, at.Addr())
	}
	return text
}

// Endpoints that refuse are left out; not those that serve some, and not all.
func TestWhoIsLeftOut(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		const eject = `sluice/eject: "true"`
		l := lab.Start(t)
		dir := t.TempDir()
		write(t, dir, "all.yaml", plainService("refusing", "10.96.0.2", "TCP", eject, "10.244.1.1:8080", "10.244.1.2:8080", "10.244.1.1:9999")+
			plainService("refusing6", "fd00:10:96::2", "TCP", eject, "[fd00:10:244:1::1]:8080", "[fd00:10:244:1::2]:8080", "[fd00:10:244:1::1]:9999")+
			plainService("datagrams6", "fd00:10:96::6", "UDP", eject, "[fd00:10:244:1::1]:8080", "[fd00:10:244:1::2]:8080", "[fd00:10:244:1::1]:9998")+
			plainService("policy", "10.96.0.3", "TCP", eject, "10.244.1.1:8081", "10.244.1.2:8081")+
			plainService("quiet", "10.96.0.8", "TCP", eject, "10.244.2.1:8081", "10.244.2.2:8081")+
			plainService("dead", "10.96.0.4", "TCP", eject, "10.244.2.1:8080", "10.244.2.2:8080")+
			plainService("scanned", "10.96.0.5", "TCP", eject, "10.244.1.1:9090", "10.244.1.2:9090")+
			plainService("datagrams", "10.96.0.6", "UDP", eject, "10.244.1.1:8080", "10.244.1.2:8080", "10.244.1.1:9998")+
			plainService("asks-not", "10.96.0.7", "TCP", "", "10.244.1.1:8080", "10.244.1.2:8080", "10.244.1.2:9997"), 0)
		a, socket := newAsker(t, l)
		flags := []string{socket, "--cluster-cidr=10.244.0.0/16"}
		if strings.HasPrefix(mode, "iptables") {
			flags = append(flags, "--eject-failing-endpoints")
		}
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: flags})
		settle(t, p, dir, 0)
		a.ready()
		if strings.HasPrefix(mode, "iptables") {
			testkit.Eventually(t, func() error {
				out, _, _ := a.ask("explain", "default/refusing")
				if !strings.Contains(out, "are not left out in the proxy mode of this node") {
					return fmt.Errorf("explain says %s", out)
				}
				if out, _, _ = a.ask("status"); !strings.Contains(out, "--eject-failing-endpoints: it has no effect") {
					return fmt.Errorf("status says %s", out)
				}
				return nil
			})
			return
		}
		drop(t, l, "pod2", "ip saddr 10.244.1.3 tcp dport 8081")
		drop(t, l, "node2", "tcp dport 8080")
		drop(t, l, "node2", "ip saddr 10.244.1.3 ip daddr 10.244.2.1 tcp dport 8081")
		flow := func(from string, protocol lab.Protocol, to string, timeout time.Duration) lab.Flow {
			return lab.Flow{From: from, Protocol: protocol, To: netip.MustParseAddrPort(to), Timeout: timeout}
		}
		var scan []lab.Flow
		for _, at := range []string{"10.244.1.1:9090", "10.244.1.2:9090", "10.244.1.1:1", "10.244.1.2:1"} {
			scan = append(scan, flow("pod3", lab.TCP, at, lab.ShortTimeout))
		}
		// And through the Service, whose ports but one nobody has.
		for port := 78; port < 83; port++ {
			scan = append(scan, flow("pod3", lab.TCP, fmt.Sprintf("10.96.0.5:%d", port), lab.ShortTimeout))
		}
		both := func(protocol lab.Protocol, addresses ...string) (flows []lab.Flow) { // as two clients of each
			for _, from := range []string{"pod3", "node1"} {
				for _, at := range addresses {
					flows = append(flows, flow(from, protocol, at, lab.DefaultTimeout))
				}
			}
			return flows
		}
		refused := newStream(t, l, 40, both(lab.TCP, "10.96.0.2:80", "[fd00:10:96::2]:80")...)
		datagrams := newStream(t, l, 40, both(lab.UDP, "10.96.0.6:80", "[fd00:10:96::6]:80")...)
		policy := []lab.Flow{flow("pod3", lab.TCP, "10.96.0.3:80", lab.DefaultTimeout), flow("node1", lab.TCP, "10.96.0.3:80", lab.DefaultTimeout)}
		for _, flows := range [][]lab.Flow{
			{policy[0], policy[1], policy[1], policy[0]}, // or in userspace mode each client would have its own endpoint
			{flow("pod3", lab.TCP, "10.96.0.4:80", lab.DefaultTimeout), flow("node1", lab.TCP, "10.96.0.4:80", lab.DefaultTimeout)},
			scan,
			{flow("pod3", lab.TCP, "10.96.0.8:80", lab.ShortTimeout)}, // nobody else connects, but the node may
			{flow("pod3", lab.TCP, "10.96.0.7:80", lab.ShortTimeout), flow("node1", lab.TCP, "10.96.0.7:80", lab.ShortTimeout)},
		} {
			newStream(t, l, 10, flows...)
		}
		leftOut := func() map[string]bool {
			out, errs, _ := a.ask("events", "-o", "json")
			var reply struct{ Events []history.Event }
			if err := json.Unmarshal([]byte(out), &reply); err != nil {
				t.Fatal(err, out, errs)
			}
			all := map[string]bool{}
			for _, e := range reply.Events {
				if e.Reason == "ejected" {
					all[e.Service+" "+e.Endpoint] = true
				}
			}
			return all
		}
		want := []string{"default/refusing 10.244.1.1:9999", "default/datagrams 10.244.1.1:9998",
			"default/refusing6 [fd00:10:244:1::1]:9999", "default/datagrams6 [fd00:10:244:1::1]:9998"}
		testkit.Eventually(t, func() error {
			for _, w := range want {
				if !leftOut()[w] {
					return fmt.Errorf("%s is not left out, only %v", w, leftOut())
				}
			}
			return nil
		})
		began := time.Now()
		trial := began.Add(3 * time.Second)
		for _, service := range []string{"default/refusing", "default/datagrams", "default/refusing6", "default/datagrams6"} {
			if next := lastTrial(t, a, service).Add(-time.Second); next.Before(trial) { // explain rounds up
				trial = next
			}
		}
		out, _, _ := a.ask("explain", "default/refusing")
		if !strings.Contains(out, "left out: ") || !strings.Contains(out, "refused since ") || !strings.Contains(out, "next trial ") {
			t.Errorf("explain says\n%s", out)
		}
		for path, want := range map[string]string{
			"/metrics?of=now":                          "\nsluice_ejected_endpoints ",
			"/metrics?of=since":                        "\nsluice_endpoint_ejections_total ",
			"/service?namespace=default&name=refusing": "left out: ",
		} {
			testkit.Eventually(t, func() error {
				page := metricsPage(l, path)
				if _, after, found := strings.Cut(page, want); !found || strings.HasPrefix(after, "0\n") {
					return fmt.Errorf("there is no %q in %s:\n%s", want, path, page)
				}
				return nil
			})
		}
		proposed := t.TempDir()
		write(t, proposed, "all.yaml", plainService("refusing", "10.96.0.2", "TCP", "", "10.244.1.1:8080", "10.244.1.2:8080", "10.244.1.1:9999"), 0)
		if out, _, code := a.ask("diff", "--add", "--manifests", proposed); code != 1 || !strings.Contains(out, "endpoints that do not answer: ") {
			t.Errorf("a difference of the annotation is %d\n%s", code, out)
		}
		time.Sleep(3 * time.Second)
		for name, s := range map[string]*stream{"TCP": refused, "UDP": datagrams} {
			for _, c := range s.between(began.Add(250*time.Millisecond), trial) {
				if c.Kind == lab.Refused {
					t.Errorf("a client of %s is refused %v after the endpoint was left out", name, c.at.Sub(began))
				}
			}
		}
		for one := range leftOut() {
			// Of those that are all dead, one may be the first to be noticed.
			if !strings.Contains(one, ":999") && !strings.Contains(one, "default/dead ") || strings.Contains(one, "asks-not") {
				t.Errorf("%s was left out", one)
			}
		}
		testkit.Eventually(t, func() error {
			if out, _, _ = a.ask("status"); !strings.Contains(out, "more than half of the endpoints of port 80/TCP do not answer") {
				return fmt.Errorf("status says\n%s", out)
			}
			return nil
		})
		if n := ejected(t, a); n > len(want) {
			t.Errorf("%d endpoints are left out", n)
		}
		// What notices that is left by a proxy that is killed, and the next one removes it, whatever its mode.
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		next := "userspace"
		if mode == next {
			next = "nftables"
		}
		write(t, dir, "all.yaml", plainService("refusing", "10.96.0.2", "TCP", "", "10.244.1.1:8080"), 0)
		startProxy(t, l, next, lab.ProxyOptions{Manifests: dir, Flags: flags})
		testkit.Eventually(t, func() error {
			if tables := on(t, l, "node1", "nft", "list", "tables"); strings.Contains(tables, "sluice-watch") {
				return fmt.Errorf("there are the tables\n%s", tables)
			}
			return nil
		})
	})
}

// ejected returns how many endpoints status counts.
func ejected(t *testing.T, a *asker) int {
	t.Helper()
	out, errs, _ := a.ask("status", "--json")
	var report struct {
		Ejected int `json:"ejectedEndpoints"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out, errs)
	}
	return report.Ejected
}
