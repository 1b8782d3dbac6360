//go:build linux

package lab_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"sluice/test/lab"
)

// dualManifests are a dual-stack Service.
var dualManifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10, "fd00:10:96::10"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: 80, targetPort: 8080}]
` + lab.EndpointSlice("IPv4", "web", "http", "pod1") + lab.EndpointSlice("IPv6", "web", "http", "pod1")

// ask requests a page of a server on node1 until it answers.
func ask(t *testing.T, l *lab.Lab, from, address, path string, header ...string) lab.Page {
	t.Helper()
	f := lab.Flow{From: from, Protocol: lab.TCP, To: netip.MustParseAddrPort(address), Timeout: lab.DefaultTimeout}
	var page lab.Page
	eventually(t, func() bool {
		var err error
		page, err = l.Get(f, path, header...)
		return err == nil
	})
	return page
}

func TestNodeWithoutIPv6(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		l := lab.Start(t)
		node1, err := l.Host("node1")
		if err != nil {
			t.Fatal(err)
		}
		if err := node1.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0) }); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		write(t, dir, "web.yaml", dualManifests, 0)
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{"--nodeport-addresses=localhost"}})
		settle(t, p, dir, 0)
		health := ask(t, l, "node1", "127.0.0.1:10256", "/healthz")
		if health.Status != 200 || !strings.Contains(health.Text, `"status":{"IPv4":{`) || strings.Contains(health.Text, "IPv6") {
			t.Errorf("/healthz says\n%s", health.Text)
		}
		metrics := ask(t, l, "node1", "127.0.0.1:10249", "/metrics").Text
		if !strings.Contains(metrics, `ip_family="IPv4"`) || strings.Contains(metrics, `ip_family="IPv6"`) {
			t.Errorf("metrics are of other families than IPv4")
		}
		if n := strings.Count(p.Log().String(), "This node does IPv4 only"); n != 1 {
			t.Errorf("it is logged %d times that there is no IPv6", n)
		}
		for _, line := range failures(p) {
			t.Errorf("there is an error in the log: %s", line)
		}
	})
}

func TestPageIsOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	const nodeAddress = "192.0.2.10"
	tests := []struct {
		name  string
		flags []string
		pages map[string]int // status of /, by address, and whether metrics are there
	}{
		{"metrics on loopback", nil, map[string]int{"127.0.0.1:10249": 200}},
		{"metrics on all addresses", []string{"--metrics-bind-address=0.0.0.0:10249"},
			map[string]int{"127.0.0.1:10249": 200, "[::1]:10249": 200, nodeAddress + ":10249": 404, "[2001:db8::10]:10249": 404}},
		{"metrics on the node's address", []string{"--metrics-bind-address=" + nodeAddress + ":10249"},
			map[string]int{nodeAddress + ":10249": 404}},
		{"an address of its own", []string{"--metrics-bind-address=0.0.0.0:10249", "--page-bind-address=127.0.0.1:10247"},
			map[string]int{"127.0.0.1:10247": 200, "127.0.0.1:10249": 404, nodeAddress + ":10249": 404}},
		{"an address that others can reach, as was asked for", []string{"--page-bind-address=" + nodeAddress + ":10247"},
			map[string]int{nodeAddress + ":10247": 200, "127.0.0.1:10249": 404}},
		{"switched off", []string{"--page=false", "--page-bind-address=127.0.0.1:10247"}, map[string]int{"127.0.0.1:10249": 404}},
	}
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "web.yaml", dualManifests, 0)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: tt.flags})
			defer p.Kill()
			settle(t, p, dir, 0)
			for address, want := range tt.pages {
				if page := ask(t, l, "node1", address, "/"); page.Status != want {
					t.Errorf("http://%s/ answers %d, want %d", address, page.Status, want)
				}
				if !strings.HasSuffix(address, ":10249") {
					continue
				}
				if page := ask(t, l, "node1", address, "/proxyMode"); page.Status != 200 {
					t.Errorf("http://%s/proxyMode answers %d", address, page.Status)
				}
			}
			if tt.pages[nodeAddress+":10249"] != 0 {
				if page := ask(t, l, "client", nodeAddress+":10249", "/"); page.Status != 404 {
					t.Errorf("a client outside is answered %d", page.Status)
				}
			}
		})
	}
}

// scrape reads the metrics of the proxy on node1 in protobuf.
func scrape(t *testing.T, l *lab.Lab) map[string]*dto.MetricFamily {
	t.Helper()
	page := ask(t, l, "node1", "127.0.0.1:10249", "/metrics",
		"Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.5")
	format := expfmt.ResponseFormat(page.Header)
	if format.FormatType() != expfmt.TypeProtoDelim {
		t.Fatalf("metrics are of type %q", page.Header.Get("Content-Type"))
	}
	out := map[string]*dto.MetricFamily{}
	for decoder := expfmt.NewDecoder(bytes.NewReader(page.Body), format); ; {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out[family.GetName()] = family
	}
}

func TestProtobufHasNativeHistograms(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "web.yaml", dualManifests, 0)
	for _, native := range []bool{true, false} {
		flags := []string{}
		if !native {
			flags = append(flags, "--feature-gates=NativeHistograms=false")
		}
		p := startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: flags})
		settle(t, p, dir, 0)
		var families map[string]*dto.MetricFamily
		eventually(t, func() bool { // the commit is counted right after it is logged, and its Services a moment later
			families = scrape(t, l)
			return families["sluice_programming_seconds"] != nil && families["sluice_service_endpoints"] != nil
		})
		for _, name := range []string{"kubeproxy_sync_proxy_rules_duration_seconds", "sluice_programming_seconds"} {
			h := families[name].GetMetric()[0].GetHistogram()
			if got := len(h.GetPositiveSpan()) > 0; got != native {
				t.Errorf("gate %v: %s has a native histogram: %v", native, name, got)
			}
			if len(h.GetBucket()) == 0 {
				t.Errorf("gate %v: %s has no classic buckets", native, name)
			}
		}
		for _, label := range families["kubernetes_build_info"].GetMetric()[0].GetLabel() {
			if label.GetName() == "git_version" && !strings.HasPrefix(label.GetValue(), "v1.37.2+sluice.") {
				t.Errorf("the version is %q", label.GetValue())
			}
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}
