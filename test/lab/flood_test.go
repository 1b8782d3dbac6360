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
	"testing"

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
