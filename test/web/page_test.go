//go:build linux

package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/browser"
	"sluice/test/lab"
)

// metricsAddress is where the proxy shows its page.
const metricsAddress = "127.0.0.1:10249"

// scaled is changed by the test while the browser looks: the EndpointSlice of
// a Service that has one more endpoint each other time.
const scaled = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-2, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
ports:
- {name: http, protocol: TCP, port: 8080}
endpoints:
- {addresses: [%s], nodeName: node1, conditions: {ready: true}}
`

// site is a proxy in a lab, and where a browser finds its page.
type site struct {
	t       *testing.T
	lab     *lab.Lab
	dir     string
	proxy   *lab.Proxy
	address string
}

func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	s := &site{t: t, lab: lab.Start(t), dir: t.TempDir()}
	text, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("shop.yaml", string(text))
	flags = append([]string{"--cluster-cidr", lab.ClusterCIDRs[0].String(), "--control-socket="}, flags...)
	if s.proxy, err = s.lab.StartProxy(lab.ProxyOptions{Manifests: s.dir, Flags: flags}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The proxy logged:\n%s", s.proxy.Log())
		}
	})
	s.settle(0)
	s.address = "http://" + s.forward()
	testkit.Eventually(t, s.answers) // the server starts on its own
	return s
}

func (s *site) answers() error {
	response, err := http.Get(s.address + "/proxyMode")
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// settle waits until the directory is programmed, looking at the log from mark on.
func (s *site) settle(mark int) {
	s.t.Helper()
	ctx, cancel := testkit.WithTimeout(s.t.Context(), testkit.Timeout)
	defer cancel()
	digest, err := lab.Digest(s.dir)
	if err == nil {
		err = s.proxy.WaitFor(ctx, digest, mark)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// forward makes the loopback address of the node one of the machine's that the
// browser runs on.
func (s *site) forward() string {
	s.t.Helper()
	node, err := s.lab.Host("node1")
	if err != nil {
		s.t.Fatal(err)
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			near, err := socket.Accept()
			if err != nil {
				return // the test is over
			}
			go join(node, near)
		}
	}()
	return socket.Addr().String()
}

func join(node *lab.Host, near net.Conn) {
	defer near.Close()
	var far net.Conn
	err := node.Do(func() (err error) {
		far, err = net.DialTimeout("tcp", metricsAddress, testkit.Scaled(testkit.Timeout))
		return err
	})
	if err != nil {
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(near, far)
}

// wantStatus asks for paths without a browser.
func (s *site) wantStatus(want map[string]int) {
	s.t.Helper()
	for path, status := range want {
		response, err := http.Get(s.address + path)
		if err != nil {
			s.t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != status {
			s.t.Errorf("%s is %s, want %d", path, response.Status, status)
		}
	}
}

// busy sends traffic to Services until the test is over.
func (s *site) busy() {
	s.t.Helper()
	var flows []lab.Flow
	for to, share := range map[string]int{"10.96.40.2:80": 1 /* has no endpoint */, "10.96.12.6:80": 5, "10.96.12.7:8080": 3, "10.96.12.8:8080": 6, "10.96.20.5:5432": 2, "10.96.0.10:53": 1} {
		for range share {
			flows = append(flows, lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort(to)})
		}
	}
	traffic, err := s.lab.StartTraffic(s.t.Context(), flows, lab.TrafficOptions{Rate: 60})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { traffic.Stop() })
}

// cell is the text of a cell in the row of a Service.
func cell(service string, column int) string {
	return fmt.Sprintf(`document.getElementById("row-%s")?.cells[%d].innerText`, service, column)
}

func TestPageShowsARealProxyAtWork(t *testing.T) {
	s := newSite(t)
	s.busy()
	b := browser.Start(t)
	tab := b.Open(t, s.address, browser.Light)
	if got := tab.Text("#sign"); got != "Serving" {
		t.Errorf("sign is %q", got)
	}
	attention := tab.Text("#problems")
	for _, want := range []string{"Service staging/preview", "refused: no endpoints", "Service shop/partners", "198.51.100.300/24"} {
		if !strings.Contains(attention, want) {
			t.Errorf("what needs attention lacks %q:\n%s", want, attention)
		}
	}
	tab.Wait(`Number.parseFloat(` + cell("shop/storefront", 3) + `) > 0`)

	tab.Wait(cell("shop/cart", 2) + ` === "2 (1 here)"`)
	s.scale("10.244.1.1")
	tab.Wait(cell("shop/cart", 2) + ` === "3 (2 here)"`)
	tab.WantNoErrors()

	if got := browser.Eval[string](tab, `document.querySelector("#services tbody tr").id`); got != "row-staging/preview" {
		t.Errorf("the first Service is %s, and not the one that is broken", got)
	}
	events := b.Open(t, s.address+"/events", browser.Light)
	events.Wait(`/staging\/preview refused \d+ packets/.test(document.querySelector("#events").innerText)`)
	events.WantNoErrors()

	outside := b.Open(t, s.address+"/service?namespace=shop&name=storefront&from=outside", browser.Light)
	outside.Wait(`document.querySelector("#frontends").innerText.includes("198.18.0.10:80/TCP")`)
	outside.Wait(`document.querySelector(".explain").textContent.includes("in the kernel")`)
	outside.WantNoErrors()

	s.wantStatus(map[string]int{"/metrics": 200, "/healthz": 200, "/proxyMode": 200, "/configz": 200, "/nothing": 404, "/page/": 404})
}

// scale gives the Service shop/cart another endpoint.
func (s *site) scale(endpoint string) {
	s.t.Helper()
	mark := s.proxy.Log().Len()
	s.write("cart.yaml", fmt.Sprintf(scaled, endpoint))
	s.settle(mark)
}

func TestPageCanBeDisabled(t *testing.T) {
	s := newSite(t, "--page=false")
	s.wantStatus(map[string]int{"/": 404, "/service?namespace=shop&name=cart": 404, "/page/page.css": 404, "/proxyMode": 200})
}
