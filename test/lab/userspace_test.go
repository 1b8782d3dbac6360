//go:build linux

package lab_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

var idleConnections = flag.Int("connections", 2000, "idle connections in userspace mode to measure, as far as the limit of open files allows")

// These tests are about what userspace mode has and others do not.

// userspaceNode is a lab in userspace mode, with a Service of port 80.
type userspaceNode struct {
	*testing.T
	*lab.Lab
	dir   string
	asker *asker
	flag  string // of the control socket
	proxy *lab.Proxy
}

var web = netip.MustParseAddrPort("10.96.0.10:80")

func newUserspaceNode(t *testing.T, endpoints ...string) *userspaceNode {
	requireSupport(t, "userspace")
	n := &userspaceNode{T: t, Lab: lab.Start(t), dir: t.TempDir()}
	n.asker, n.flag = newAsker(t, n.Lab)
	service, _, _ := strings.Cut(dualManifests, "---")
	write(t, n.dir, "web.yaml", service+lab.EndpointSlice("IPv4", "web", "http", endpoints...), 0)
	return n
}

// start starts a proxy and waits until it serves.
func (n *userspaceNode) start(flags ...string) {
	n.Helper()
	n.startAs("", flags...)
}

func (n *userspaceNode) startAs(binary string, flags ...string) {
	n.Helper()
	n.proxy = n.launch(binary, flags...)
	settle(n.T, n.proxy, n.dir, 0)
	n.asker.ready()
}

func (n *userspaceNode) launch(binary string, flags ...string) *lab.Proxy {
	n.Helper()
	flags = append(flags, n.flag, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48")
	return startProxy(n.T, n.Lab, "userspace", lab.ProxyOptions{Binary: binary, Manifests: n.dir, Flags: flags})
}

func (n *userspaceNode) host(name string) *lab.Host {
	n.Helper()
	h, err := n.Host(name)
	if err != nil {
		n.Fatal(err)
	}
	return h
}

func (n *userspaceNode) run(host, script string) string {
	n.Helper()
	out, err := n.host(host).Run(n.Context(), lab.Command{Args: []string{"sh", "-ec", script}})
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// metric returns the value of a metric.
func (n *userspaceNode) metric(series string) int {
	n.Helper()
	text := ask(n.T, n.Lab, "node1", "127.0.0.1:10249", "/metrics").Text
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		n.Fatalf("there is no metric %s", series)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		n.Fatal(err)
	}
	return int(value)
}

// serve has connections to a port of a host served.
func (n *userspaceNode) serve(host string, port uint16, serve func(net.Conn)) {
	n.Helper()
	var listener net.Listener
	err := n.host(host).Do(func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// dial connects a host to an address.
func (n *userspaceNode) dial(host string, to netip.AddrPort) (c net.Conn, err error) {
	err = n.host(host).Do(func() (err error) {
		c, err = net.DialTimeout("tcp4", to.String(), testkit.Scaled(testkit.Timeout))
		return err
	})
	return c, err
}

// withFiles returns a command that runs the proxy with a limit of open files.
func withFiles(t *testing.T, limit int) string {
	t.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", limit, proxy)
	if err := testkit.WriteExecutable(file, []byte(script)); err != nil {
		t.Fatal(err)
	}
	return file
}

// A client notices nothing but time if some endpoints refuse or are silent, and the
// metrics tell.
func TestUserspaceTriesTheNextEndpoint(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1", "pod2", "remote1")
	n.run("pod2", "nft add table ip f; nft add chain ip f in '{ type filter hook input priority 0; }'; nft add rule ip f in ip protocol { tcp, udp } reject")
	n.run("remote1", "nft add table ip f; nft add chain ip f in '{ type filter hook input priority 0; }'; nft add rule ip f in tcp dport 8080 drop")
	n.start()
	for range 6 { // two turns
		o := n.Connect(t.Context(), lab.Flow{From: "client", Protocol: lab.TCP, To: web, Timeout: testkit.Timeout})
		if o.Kind != lab.Answered || o.By != "pod1" {
			t.Errorf("%v, want an answer of pod1", o)
		}
	}
	if got := n.metric(`sluice_userspace_retried_endpoints_total{protocol="TCP"}`); got < 4 {
		t.Errorf("%d endpoints were tried in vain, want 4 or more", got)
	}
	if got := n.metric(`sluice_userspace_accepted_connections_total{protocol="TCP"}`); got != 6 {
		t.Errorf("%d connections were accepted, want 6", got)
	}
	if got := n.metric(`sluice_userspace_refused_connections_total{protocol="TCP",reason="endpoints"}`); got != 0 {
		t.Errorf("%d connections were refused", got)
	}

	// All of them refuse.
	n.run("pod1", "nft add table ip f; nft add chain ip f in '{ type filter hook input priority 0; }'; nft add rule ip f in ip protocol { tcp, udp } reject")
	n.run("remote1", "nft flush chain ip f in; nft add rule ip f in ip protocol { tcp, udp } reject")
	o := n.Connect(t.Context(), lab.Flow{From: "client", Protocol: lab.TCP, To: web, Timeout: testkit.Timeout})
	if o.Kind == lab.Answered {
		t.Errorf("%v, though no endpoint answers", o)
	}
	eventually(t, func() bool {
		return n.metric(`sluice_userspace_refused_connections_total{protocol="TCP",reason="endpoints"}`) == 1
	})
}

// What was not led to the proxy by the rules does not get in.
func TestUserspaceSocketsAreNotReachable(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	n.start("--proxy-port-range=41000-41007")
	answered(t, n.Lab, web)
	rules := n.run("node1", "nft list table ip sluice")
	var flows []lab.Flow
	for port := range uint16(4) {
		at := netip.AddrPortFrom(hostAddr(t, n.Lab, "node1"), 41000+port)
		// The others are for clients outside, where a policy makes a difference.
		if port < 2 && !strings.Contains(rules, fmt.Sprintf("dnat to %v", at)) {
			t.Errorf("nothing is led to %v:\n%s", at, rules)
		}
		for _, from := range []string{"client", "pod2", "node1"} {
			for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
				flows = append(flows, lab.Flow{From: from, Protocol: protocol, To: at, Timeout: lab.ShortTimeout})
			}
		}
	}
	for i, o := range n.Probe(t.Context(), flows) {
		if o.Kind != lab.Dropped {
			t.Errorf("%v: %v, want it dropped", flows[i], o)
		}
	}
}

// A UDP client that uses one socket for two Services gets the answers of each.
func TestUserspaceOneSocketForTwoServices(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	var manifests strings.Builder
	for i, pod := range []string{"pod1", "pod2"} {
		fmt.Fprintf(&manifests, `---
apiVersion: v1
kind: Service
metadata: {name: dns%d, namespace: default}
spec:
  clusterIP: 10.96.0.2%d
  ports: [{name: http, protocol: UDP, port: 53, targetPort: 8080}]
`, i, i)
		manifests.WriteString(strings.Replace(lab.EndpointSlice("IPv4", fmt.Sprintf("dns%d", i), "http", pod), "port: 8080", "port: 8080, protocol: UDP", 1))
	}
	write(t, n.dir, "dns.yaml", manifests.String(), 0)
	n.start("--udp-timeout=1s")
	var socket *net.UDPConn
	if err := n.host("pod3").Do(func() (err error) { socket, err = net.ListenUDP("udp4", nil); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	talk := func() {
		t.Helper()
		for range 5 {
			for i := range 2 {
				to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(20 + i)}), 53)
				name := fmt.Sprintf("pod%d", i+1)
				testkit.Eventually(t, func() error {
					if _, err := socket.WriteToUDPAddrPort([]byte("who?\n"), to); err != nil {
						return err
					}
					_ = socket.SetReadDeadline(testkit.Deadline(time.Second))
					answer := make([]byte, 500)
					read, from, err := socket.ReadFromUDPAddrPort(answer)
					if err == nil && (from != to || !strings.Contains(string(answer[:read]), name)) {
						err = fmt.Errorf("%q came from %v, want an answer of %s from %v", answer[:read], from, name, to)
					}
					return err
				})
			}
		}
	}
	talk()
	// The same port for the other Service, after the first flows are forgotten.
	n.forgetsUDP()
	n.run("node1", "conntrack -D -p udp >/dev/null 2>&1 || true")
	talk()
}

// forgetsUDP waits until the proxy has no socket for any client of UDP.
func (n *userspaceNode) forgetsUDP() {
	n.Helper()
	eventually(n.T, func() bool { return n.run("node1", "ss -Hun dst 10.244.0.0/16") == "" })
}

// A UDP client that was silent for long enough gets an endpoint anew.
func TestUserspaceUDPTimeout(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	for flag, forgets := range map[string]bool{"--udp-timeout=1s": true, "--udp-timeout=1h": false} {
		manifest := strings.NewReplacer("protocol: TCP", "protocol: UDP", "port: 80,", "protocol: UDP, port: 80,").Replace(strings.Split(dualManifests, "---")[0])
		write(t, n.dir, "web.yaml", manifest+strings.Replace(lab.EndpointSlice("IPv4", "web", "http", "pod1"), "port: 8080", "port: 8080, protocol: UDP", 1), 0)
		n.start(flag)
		s, err := n.Open(lab.Flow{From: "client", Protocol: lab.UDP, To: web})
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.Ask()
		if err != nil {
			t.Fatal(err)
		}
		if forgets {
			n.forgetsUDP()
		} else {
			time.Sleep(1600 * time.Millisecond)
		}
		second, err := s.Ask()
		if err != nil {
			t.Fatal(err)
		}
		if forgot := first.Source != second.Source; forgot != forgets {
			t.Errorf("%s: the endpoint saw %v and then %v", flag, first.Source, second.Source)
		}
		s.Close()
		if err := n.proxy.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// A new process takes over from one that ends, which serves its connections to their
// end. None is refused meanwhile.
func TestUserspaceHandover(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1", "pod2")
	n.start("--shutdown-grace=10m")
	flow := lab.Flow{From: "client", Protocol: lab.TCP, To: web}
	standing, err := n.Open(flow)
	if err != nil {
		t.Fatal(err)
	}
	defer standing.Close()
	old := n.proxy
	next := n.launch("")
	eventually(t, func() bool { return strings.Contains(next.Log().String(), "Another proxy programs this node") })

	stop := make(chan struct{})
	var tried, failed atomic.Int64
	var trying sync.WaitGroup
	trying.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			tried.Add(1)
			if o := n.Connect(t.Context(), flow); o.Kind != lab.Answered {
				failed.Add(1)
				t.Errorf("during the handover: %v", o)
			}
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- old.Stop() }()
	settle(t, next, n.dir, 0)
	before := tried.Load()
	eventually(t, func() bool { return tried.Load() >= before+50 })
	if _, err := standing.Ask(); err != nil {
		t.Errorf("the connection through the old process: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("the old process ended although it has a connection: %v", err)
	default:
	}
	close(stop)
	trying.Wait()
	t.Logf("%d connections during the handover, %d failed", tried.Load(), failed.Load())
	standing.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// What lasts longer than the grace ends with the process.
	if err := next.Stop(); err != nil {
		t.Fatal(err)
	}
	n.start("--shutdown-grace=1s")
	if standing, err = n.Open(flow); err != nil {
		t.Fatal(err)
	}
	if err := n.proxy.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := standing.Ask(); err == nil {
		t.Error("a connection outlives the process")
	}
	if log := n.proxy.Log().String(); !strings.Contains(log, "Connections that go through this process end with it") {
		t.Errorf("the end of the connection is not logged:\n%s", log)
	}
}

// One process after the other takes over under traffic, of which nothing is lost.
func TestUserspaceManyHandovers(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t, "one handover is tried")
	n := newUserspaceNode(t, "pod1", "pod2")
	grace := func() string { return fmt.Sprintf("--shutdown-grace=%v", testkit.Scaled(6*time.Second)) } // for connections under way
	n.start(grace())
	traffic, err := n.StartTraffic(t.Context(), []lab.Flow{{From: "client", Protocol: lab.TCP, To: web}}, lab.TrafficOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		old := n.proxy
		n.proxy = n.launch("", grace())
		eventually(t, func() bool { return strings.Contains(n.proxy.Log().String(), "Another proxy programs this node") })
		if err := old.Stop(); err != nil {
			t.Error(err)
		}
		settle(t, n.proxy, n.dir, 0)
	}
	count := traffic.Stop()
	t.Log(count)
	if count.Lost() > 0 {
		t.Errorf("connections were lost: %v", count)
	}
}

// moreFiles raises the limit of open files of this process, as far as it can, and returns it.
func moreFiles(t *testing.T) int {
	t.Helper()
	limit := unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) != nil { // not allowed on this machine
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	return int(limit.Cur)
}

// hold opens connections to the Service until the test ends.
func (n *userspaceNode) hold(connections int) (held []net.Conn) {
	n.Helper()
	n.Cleanup(func() {
		for _, c := range held {
			c.Close()
		}
	})
	err := n.host("client").Do(func() error {
		for range connections {
			c, err := net.DialTimeout("tcp4", web.String(), testkit.Scaled(testkit.Timeout))
			if err != nil {
				return fmt.Errorf("connection %d: %w", len(held)+1, err)
			}
			held = append(held, c)
		}
		return nil
	})
	if err != nil {
		n.Fatal(err)
	}
	eventually(n.T, func() bool { return n.metric("sluice_userspace_connections") == connections })
	return held
}

// webAt has the Service lead to a port of pods.
func (n *userspaceNode) webAt(port int, pods ...string) {
	n.Helper()
	service, _, _ := strings.Cut(dualManifests, "---")
	write(n.T, n.dir, "web.yaml", service+strings.Replace(lab.EndpointSlice("IPv4", "web", "http", pods...), "port: 8080", fmt.Sprint("port: ", port), 1), 0)
}

// The endpoints of a Service with very many connections change without a loss, and other Services and
// their changes do not wait for that.
func TestUserspaceChangesBesideHeldConnections(t *testing.T) {
	t.Parallel()
	files := moreFiles(t)
	connections := min(testkit.Extent(100, 500, 4000), (files-128)/4)
	n := newUserspaceNode(t, "pod1")
	other := netip.MustParseAddrPort("10.96.0.1:80")
	write(t, n.dir, "good.yaml", goodManifests, 0)
	n.webAt(7000, "pod1")
	for _, pod := range []string{"pod1", "pod2"} {
		n.serve(pod, 7000, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	}
	n.startAs(withFiles(t, files))
	n.hold(connections)
	for i := range 10 {
		mark := n.proxy.Log().Len()
		n.webAt(7000, [][]string{{"pod2"}, {"pod1", "pod2"}, {"pod1"}}[i%3]...)
		write(t, n.dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", fmt.Sprint("10.244.1.", 1+(i+1)%2)), 0)
		settle(t, n.proxy, n.dir, mark)
		answered(t, n.Lab, other)
	}
	// Those that asked the other Service may not have ended yet; of those that are held none may be lost.
	eventually(t, func() bool { return n.metric("sluice_userspace_connections") == connections })
}

// Connections of a host that vanished without a word end at some time.
func TestUserspaceVanishedClients(t *testing.T) {
	t.Parallel()
	testkit.OnlyFull(t, "the kernel asks a silent peer for two and a half minutes")
	n := newUserspaceNode(t, "pod1")
	n.webAt(7000, "pod1")
	n.serve("pod1", 7000, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	n.start()
	files := openFiles(t, n.proxy)
	n.hold(50)
	n.run("client", "nft add table inet gone; for hook in input output; do nft add chain inet gone $hook \"{ type filter hook $hook priority 0; policy drop; }\"; done")
	err := testkit.Poll(5*time.Minute, func() error {
		if now := n.metric("sluice_userspace_connections"); now > 0 {
			return fmt.Errorf("%d connections are left, with %d files, %d before them", now, openFiles(t, n.proxy), files)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Idle connections cost little, and a client that does not read costs no more memory
// than any other.
func TestUserspaceMemory(t *testing.T) {
	files := moreFiles(t)
	connections := min(*idleConnections, (files-128)/4)
	n := newUserspaceNode(t, "pod1")
	n.webAt(7000, "pod1")
	n.serve("pod1", 7000, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	n.startAs(withFiles(t, files))
	before := n.memory()
	n.hold(connections)
	idle := n.memory()
	each := (idle - before) / connections
	t.Logf("%d idle connections: %d MiB resident before, %d MiB with them, %d bytes each; %d files", connections, before>>20, idle>>20, each, openFiles(t, n.proxy))
	if each > 40<<10 {
		t.Errorf("an idle connection costs %d bytes", each)
	}
	if files := openFiles(t, n.proxy); files > 2*connections+500 {
		t.Errorf("%d open files, more than two for each connection", files)
	}
}

// memory returns the resident memory of the proxy.
func (n *userspaceNode) memory() int {
	n.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.proxy.PID()))
	if err != nil {
		n.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		n.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestUserspaceSlowReader(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	service, _, _ := strings.Cut(dualManifests, "---")
	write(t, n.dir, "web.yaml", service+strings.Replace(lab.EndpointSlice("IPv4", "web", "http", "pod1"), "port: 8080", "port: 7000", 1), 0)
	const most = 256 << 20
	sent := make(chan int64, 1)
	n.serve("pod1", 7000, func(c net.Conn) {
		defer c.Close()
		written, _ := io.Copy(c, io.LimitReader(zeros{}, most))
		sent <- written
	})
	n.start()
	c, err := n.dial("client", web)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := n.memory()
	select {
	case got := <-sent:
		t.Fatalf("%d bytes were taken from the endpoint, and none was read", got)
	case <-time.After(testkit.Scaled(500 * time.Millisecond)):
	}
	if grown := n.memory() - before; grown > 16<<20 {
		t.Errorf("the proxy has %d bytes more", grown)
	}
	got, err := io.Copy(io.Discard, c)
	if err != nil || got != most {
		t.Errorf("read %d bytes, error %v, want %d", got, err, int64(most))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, errors.New("nothing to fill")
	}
	return len(p), nil
}
