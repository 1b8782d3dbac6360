//go:build linux

package lab_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
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

var checkedManifests = `
apiVersion: v1
kind: Service
metadata: {name: checked, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.20
  externalTrafficPolicy: Local
  healthCheckNodePort: 32001
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
` + lab.EndpointSlice("IPv4", "checked", "", "pod1") + `---` + nodeManifest

// Very many idle connections do not keep others from an answer, on any server of
// the proxy, and their cost is bounded and released.
func TestIdleConnectionsBlockNoClient(t *testing.T) {
	const flood = 1500 // on each server
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "checked.yaml", checkedManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--page-bind-address=127.0.0.1:10247", "--nodeport-addresses=127.0.0.0/8,192.0.2.0/24"}})
	settle(t, p, dir, 0)
	pages := map[string]string{ // by server
		"127.0.0.1:10256": "/healthz", "127.0.0.1:10249": "/metrics", "127.0.0.1:10247": "/", "192.0.2.10:32001": "/",
	}
	answerAll := func() {
		t.Helper()
		for server, path := range pages {
			eventually(t, func() bool {
				page, err := l.Get(lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort(server), Timeout: lab.DefaultTimeout}, path)
				return err == nil && page.Status == 200
			})
		}
		eventually(t, func() bool { _, _, code := a.ask("status"); return code == 0 })
	}
	answerAll()
	files, goroutines := openFiles(t, p), goroutinesOf(t, l)

	var connections []net.Conn
	defer func() {
		for _, c := range connections {
			c.Close()
		}
	}()
	open := func(network, address string) {
		t.Helper()
		for range flood {
			var c net.Conn
			err := a.node.Do(func() (err error) { c, err = net.Dial(network, address); return err })
			if err != nil {
				t.Fatal(err)
			}
			connections = append(connections, c)
			if _, err := io.WriteString(c, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for server := range pages {
		open("tcp", server)
	}
	open("unix", a.socket)
	answerAll()
	eventually(t, func() bool { return openFiles(t, p) < files+2100 && goroutinesOf(t, l) < goroutines+2100 }) // of 7500
	for _, c := range connections {
		c.Close()
	}
	connections = nil
	eventually(t, func() bool { return openFiles(t, p) < files+20 && goroutinesOf(t, l) < goroutines+20 })
	answerAll()
}

// However fast a neighbour opens connections to the ports that load balancers ask, and whatever it
// sends or leaves half said there, each question is answered.
func TestFloodsLoseNoHealthCheck(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "checked.yaml", checkedManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--nodeport-addresses=192.0.2.0/24"}})
	settle(t, p, dir, 0)
	neighbour := onThreads(t, l, "client")
	for server, path := range map[string]string{"192.0.2.10:10256": "/healthz", "192.0.2.10:32001": "/"} {
		flow := lab.Flow{From: "client2", Protocol: lab.TCP, To: netip.MustParseAddrPort(server)}
		eventually(t, func() bool { page, err := l.Get(flow, path); return err == nil && page.Status == 200 })
		for name, say := range map[string]string{"nothing": "", "half a question": "GET / HT", "a question": "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
			t.Run(server+" "+name, func(t *testing.T) {
				var stop atomic.Bool
				var opened atomic.Int64
				var flood sync.WaitGroup
				for range 8 {
					flood.Go(func() { _ = neighbour(func() error { return openAndReset(server, say, &stop, &opened) }) })
				}
				eventually(t, func() bool { return opened.Load() > 500 })
				const checks = 25
				lost := 0
				for range checks {
					if page, err := l.Get(flow, path); err != nil || page.Status != 200 {
						lost++
						t.Logf("%v, %d", err, page.Status)
					}
				}
				stop.Store(true)
				flood.Wait()
				t.Logf("%d of %d lost beside %d connections", lost, checks, opened.Load())
				if lost > 0 {
					t.Errorf("%d of %d health checks are lost", lost, checks)
				}
			})
		}
	}
}

// openAndReset opens connections, 20 at a time, says something on them and resets them.
func openAndReset(server, say string, stop *atomic.Bool, opened *atomic.Int64) error {
	for !stop.Load() {
		var open []net.Conn
		for range 20 {
			c, err := net.DialTimeout("tcp4", server, time.Second)
			if err != nil {
				break // there is no room
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = io.WriteString(c, say)
			open = append(open, c)
			opened.Add(1)
		}
		for _, c := range open {
			c.Close()
		}
	}
	return nil
}

// openFiles counts the open files and sockets of the proxy.
func openFiles(t *testing.T, p *lab.Proxy) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

var goroutineMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

func goroutinesOf(t *testing.T, l *lab.Lab) int {
	t.Helper()
	found := goroutineMetric.FindStringSubmatch(ask(t, l, "node1", "127.0.0.1:10249", "/metrics").Text)
	if found == nil {
		t.Fatal("there is no metric of goroutines")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A website whose name resolves to the node cannot read pages through a browser
// there, on either server. Scrapers may use any name.
func TestWebsitesCannotReadThePage(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "web.yaml", dualManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--page-bind-address=127.0.0.1:10247", "--profiling"}})
	settle(t, p, dir, 0)
	for _, tt := range []struct {
		server, path, host string
		want               int
	}{
		{"127.0.0.1:10247", "/", "website.example:10247", 403},
		{"127.0.0.1:10247", "/service?name=default/web", "website.example", 403},
		{"127.0.0.1:10247", "/", "localhost:10247", 200},
		{"127.0.0.1:10247", "/", "node1:10247", 200},
		{"127.0.0.1:10249", "/configz", "website.example:10249", 403},
		{"127.0.0.1:10249", "/debug/pprof/heap", "website.example:10249", 403},
		{"127.0.0.1:10249", "/configz", "node1:10249", 200},
		{"127.0.0.1:10249", "/debug/pprof/heap", "127.0.0.1:10249", 200},
		{"127.0.0.1:10249", "/metrics", "kube-proxy.kube-system.svc:10249", 200},
		{"127.0.0.1:10249", "/healthz", "website.example", 200},
		{"127.0.0.1:10249", "/proxyMode", "website.example", 200},
		{"127.0.0.1:10256", "/healthz", "website.example", 200},
	} {
		if page := ask(t, l, "node1", tt.server, tt.path, "Host: "+tt.host); page.Status != tt.want {
			t.Errorf("%s on %s is %d by the name %s, want %d", tt.path, tt.server, page.Status, tt.host, tt.want)
		}
	}
}

// A directory in which others could put their own socket is not used. The log has
// its owner and a remedy, and everything else works.
func TestControlSocketDirectoryIsChecked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(dir string) error{
		"another owner":       func(dir string) error { return os.Chown(dir, 12345, 12345) },
		"everybody may write": func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) },
		"the group may write": func(dir string) error { return os.Chmod(dir, 0o770) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.Start(t)
			a, flag := newAsker(t, l)
			own := strings.TrimSuffix(a.socket, "/proxy.sock")
			if err := os.Mkdir(own, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := spoil(own); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			write(t, dir, "good.yaml", goodManifests, 0)
			p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
			settle(t, p, dir, 0)
			answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
			eventually(t, func() bool {
				log := p.Log().String()
				return strings.Contains(log, "Cannot answer on the control socket") && strings.Contains(log, own) &&
					(strings.Contains(log, "chown 0 "+own) || strings.Contains(log, "chmod go-w "+own))
			})
			if _, _, code := a.ask("status"); code != 2 {
				t.Errorf("it is asked all the same, status ends with %d", code)
			}
		})
	}
}

const affineManifests = `
apiVersion: v1
kind: Service
metadata: {name: affine, namespace: tenant}
spec:
  clusterIP: 10.96.6.6
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}
  ports: [{protocol: UDP, port: 53}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: affine-1, namespace: tenant, labels: {kubernetes.io/service-name: affine}}
addressType: IPv4
ports: [{protocol: UDP, port: 8080}]
endpoints: [{addresses: [10.244.1.2]}]
`

// Very many addresses that are not its own, from which one neighbour sends to a Service with session
// affinity, take neither memory without a bound nor time from others.
func TestSpoofedClientsAreForgotten(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		clients := testkit.Extent(5_000, 20_000, 100_000)
		l := lab.Start(t)
		dir := t.TempDir()
		write(t, dir, "good.yaml", goodManifests, 0)
		write(t, dir, "affine.yaml", affineManifests, 0)
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
		settle(t, p, dir, 0)
		to := netip.MustParseAddrPort("10.96.6.6:53")
		if o := l.Connect(t.Context(), lab.Flow{From: "client", Protocol: lab.UDP, To: to}); o.Kind != lab.Answered {
			t.Fatalf("%v", o)
		}
		before, files := resident(t, p.PID()), openFiles(t, p)
		host, err := l.Host("client")
		if err != nil {
			t.Fatal(err)
		}
		on(t, l, "client", "ip", "route", "add", "local", "10.128.0.0/9", "dev", "lo")
		if err := host.Do(func() error { return spoof(to, clients) }); err != nil {
			t.Fatal(err)
		}
		mark := p.Log().Len()
		write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
		settle(t, p, dir, mark)
		answered(t, l, netip.MustParseAddrPort("10.96.0.1:80"))
		if o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.UDP, To: to}); o.Kind != lab.Answered {
			t.Errorf("%v", o)
		}
		after, now := resident(t, p.PID()), openFiles(t, p)
		t.Logf("%d clients: %d MiB resident before, %d after, %d files before, %d after", clients, before>>20, after>>20, files, now)
		if after-before > 64<<20 {
			t.Errorf("they cost %d MiB", (after-before)>>20)
		}
		if page := ask(t, l, "node1", healthServer, "/healthz"); page.Status != 200 {
			t.Errorf("/healthz is %d: %s", page.Status, page.Text)
		}
	})
}

// spoof sends a datagram from each of so many addresses, which are local here.
func spoof(to netip.AddrPort, clients int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	source := netip.MustParseAddr("10.128.0.1")
	for range clients {
		from := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: source.As4()})
		if err := unix.Sendmsg(fd, []byte("who?\n"), from, at, 0); err != nil {
			return fmt.Errorf("from %v: %w", source, err)
		}
		source = source.Next()
	}
	return nil
}
