//go:build linux

package telemetry

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const plain = "text/plain; charset=utf-8"

// server returns a Server with everything enabled, changed by edits.
func (w *world) server(edits ...func(*ServerOptions)) *Server {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("proxy-mode", "nftables", "")
	flags.String("token", "secret", "")
	if err := flags.SetAnnotation("token", "classified", []string{"true"}); err != nil {
		w.t.Fatal(err)
	}
	o := ServerOptions{
		Metrics: w.registry, Refresh: w.updater.Refresh,
		Mode: "nftables", ModeReason: "by chance", Version: "v1.2.3", Flags: flags, Statusz: true, Profiling: true,
		Config: func() *v1alpha1.KubeProxyConfiguration {
			return &v1alpha1.KubeProxyConfiguration{ClusterCIDR: "10.1.0.0/16"}
		},
		Hosts: []string{"example.com"}, // of requests of package httptest
		Clock: w.clock,
	}
	for _, edit := range edits {
		edit(&o)
	}
	return NewServer(o)
}

// ask sends a request; accept may be empty.
func ask(s *Server, method, path, accept, body string) *http.Response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	return body
}

func TestPathsAnswerAsUpstreamsDo(t *testing.T) {
	const metricsText = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
	tests := []struct {
		path     string
		status   int
		kind     string
		contains string
	}{
		{"/metrics", 200, metricsText, `sluice_frontends{status="failed"} 1`},
		{"/metrics/slis", 200, metricsText, "process_start_time_seconds"},
		{"/healthz", 200, plain, "ok"},
		{"/healthz?verbose", 200, plain, "[+]ping ok"},
		{"/healthz/ping", 200, plain, "ok"},
		{"/proxyMode", 200, plain, "nftables"},
		{"/configz", 200, "application/json", `"clusterCIDR":"10.1.0.0/16"`},
		{"/flagz", 200, plain, "proxy-mode=nftables"},
		{"/statusz", 200, plain, "Binary version: v1.2.3"},
		{"/statusz", 200, plain, "Mode: nftables (by chance)\n"},
		{"/debug/pprof", 302, "text/html; charset=utf-8", "/debug/pprof/"},
		{"/debug/pprof/", 200, "text/html; charset=utf-8", "goroutine"},
		{"/debug/pprof/heap?debug=1", 200, plain, "heap profile"},
		{"/debug/pprof/symbol", 200, plain, "num_symbols"},
		{"/debug/flags", 200, plain, "/debug/flags/v"},
		{"/debug/flags/", 200, plain, "/debug/flags/v"},
		{"/", 404, plain, "not found"},
		{"/livez", 404, plain, "not found"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			w := newWorld(t)
			w.status.Failed = 1
			r := ask(w.server(), http.MethodGet, tt.path, "", "")
			if r.StatusCode != tt.status || r.Header.Get("Content-Type") != tt.kind {
				t.Errorf("answer is %d %q, want %d %q", r.StatusCode, r.Header.Get("Content-Type"), tt.status, tt.kind)
			}
			if body := bodyOf(t, r); !strings.Contains(body, tt.contains) {
				t.Errorf("body has no %q:\n%s", tt.contains, body)
			}
		})
	}
}

func TestProxyModeIsTheModeAndNoMore(t *testing.T) {
	r := ask(newWorld(t).server(), http.MethodGet, "/proxyMode", "", "")
	if body := bodyOf(t, r); body != "nftables" {
		t.Errorf("body is %q", body)
	}
	if r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header is %v", r.Header)
	}
}

func TestDisabledPagesAreNotFound(t *testing.T) {
	s := newWorld(t).server(func(o *ServerOptions) { o.Flags, o.Statusz, o.Profiling = nil, false, false })
	for _, path := range []string{"/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v"} {
		if r := ask(s, http.MethodGet, path, "", ""); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s answers %s", path, r.Status)
		}
	}
}

func TestConfigz(t *testing.T) {
	config := &v1alpha1.KubeProxyConfiguration{HostnameOverride: "before"}
	s := newWorld(t).server(func(o *ServerOptions) {
		o.Config = func() *v1alpha1.KubeProxyConfiguration { return config }
	})
	config = &v1alpha1.KubeProxyConfiguration{HostnameOverride: "after"}
	var got map[string]v1alpha1.KubeProxyConfiguration
	if err := json.Unmarshal([]byte(bodyOf(t, ask(s, http.MethodGet, "/configz", "", ""))), &got); err != nil {
		t.Fatal(err)
	}
	c := got["kubeproxy.config.k8s.io"]
	if c.HostnameOverride != "after" || c.Kind != "KubeProxyConfiguration" || c.APIVersion != "kubeproxy.config.k8s.io/v1alpha1" {
		t.Errorf("configuration is %+v", got)
	}
}

// TestVerbosityIsSetByPut restores the log level, which is that of the process.
func TestVerbosityIsSetByPut(t *testing.T) {
	s := newWorld(t).server()
	t.Cleanup(func() { ask(s, http.MethodPut, "/debug/flags/v", "", "0") })
	tests := []struct {
		name, method, body string
		status             int
		level              klog.Level // that is on afterwards, and the next is not
	}{
		{"set", http.MethodPut, "3", 200, 3},
		{"no number", http.MethodPut, "loud", 400, 3},
		{"below zero", http.MethodPut, "-1", 400, 3},
		{"endless", http.MethodPut, strings.Repeat("1", 1000), 400, 3},
		{"another method", http.MethodPost, "5", 406, 3},
		{"only looked at", http.MethodGet, "", 406, 3},
		{"lowered", http.MethodPut, "1", 200, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(s, tt.method, "/debug/flags/v", "", tt.body)
			if r.StatusCode != tt.status || r.Header.Get("Content-Type") != plain {
				t.Errorf("answer is %s %q: %s", r.Status, r.Header.Get("Content-Type"), bodyOf(t, r))
			}
			if !klog.V(tt.level).Enabled() || klog.V(tt.level+1).Enabled() {
				t.Errorf("the level is not %d", tt.level)
			}
		})
	}
}

func TestZPagesNegotiateTheObject(t *testing.T) {
	const flagz, statusz = ";g=config.k8s.io;v=v1beta1;as=Flagz", ";g=config.k8s.io;v=v1beta1;as=Statusz"
	tests := []struct {
		name, path, accept string
		status             int
		kind               string
	}{
		{"a browser", "/flagz", "text/html,*/*;q=0.8", 200, plain},
		{"curl", "/flagz", "*/*", 200, plain},
		{"text", "/statusz", "text/plain", 200, plain},
		{"JSON", "/flagz", "application/json" + flagz, 200, "application/json"},
		{"YAML", "/statusz", "application/yaml" + statusz, 200, "application/yaml"},
		{"text if there is no such object", "/statusz", "application/json" + flagz + ", text/plain", 200, plain},
		{"JSON of what", "/flagz", "application/json", 406, plain},
		{"another version", "/flagz", "application/json;g=config.k8s.io;v=v9;as=Flagz", 406, plain},
		{"text is no object", "/flagz", "text/plain" + flagz, 406, plain},
		{"an image", "/flagz", "image/png", 406, plain},
		{"nonsense", "/flagz", "///", 406, plain},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(newWorld(t).server(), http.MethodGet, tt.path, tt.accept, "")
			if r.StatusCode != tt.status || r.Header.Get("Content-Type") != tt.kind {
				t.Errorf("answer is %s %q", r.Status, r.Header.Get("Content-Type"))
			}
		})
	}
}

func TestZPageObjectsAreAsUpstreams(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	w.clock.Step(90 * time.Second)
	tests := []struct {
		path, kind string
		want       map[string]any
	}{
		{"/flagz", "Flagz", map[string]any{
			"flags": map[string]any{"proxy-mode": "nftables", "token": "CLASSIFIED"},
		}},
		{"/statusz", "Statusz", map[string]any{
			"startTime": "2026-03-01T08:00:00Z", "uptimeSeconds": 90.0, "binaryVersion": "v1.2.3",
			"paths": []any{"/configz", "/flagz", "/healthz", "/metrics", "/proxyMode"},
		}},
	}
	for _, tt := range tests {
		for version, warned := range map[string]bool{"v1alpha1": true, "v1beta1": false} {
			for _, mediaType := range []string{"application/json", "application/yaml"} {
				t.Run(tt.kind+" "+version+" "+mediaType, func(t *testing.T) {
					r := ask(s, http.MethodGet, tt.path, mediaType+";g=config.k8s.io;v="+version+";as="+tt.kind, "")
					var got map[string]any
					if err := yaml.Unmarshal([]byte(bodyOf(t, r)), &got); err != nil {
						t.Fatal(err)
					}
					delete(got, "goVersion")
					tt.want["kind"], tt.want["apiVersion"] = tt.kind, "config.k8s.io/"+version
					tt.want["metadata"] = map[string]any{"name": "kube-proxy"}
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("object (-want +got):\n%s", diff)
					}
					if (r.Header.Get("Warning") != "") != warned {
						t.Errorf("warning is %q", r.Header.Get("Warning"))
					}
				})
			}
		}
	}
}

func TestPageIsOnLoopbackOnly(t *testing.T) {
	tests := []struct {
		name string
		at   net.Addr
		want int
	}{
		{"IPv4 loopback", &net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: 10249}, 200},
		{"IPv6 loopback", &net.TCPAddr{IP: net.IPv6loopback, Port: 10249}, 200},
		{"loopback by a socket of both families", &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1"), Port: 10249}, 200},
		{"the node's address", &net.TCPAddr{IP: net.ParseIP("192.0.2.10"), Port: 10249}, 404},
		{"the node's address of IPv6", &net.TCPAddr{IP: net.ParseIP("2001:db8::10"), Port: 10249}, 404},
		{"a connection of another sort", &net.UnixAddr{Name: "/run/proxy", Net: "unix"}, 404},
		{"it is not known where", nil, 404},
	}
	page := http.NewServeMux()
	for _, path := range []string{"/{$}", "/service"} {
		page.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "the page") })
	}
	handler := newWorld(t).server(func(o *ServerOptions) { o.Page = page }).Handler()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for path, want := range map[string]int{"/": tt.want, "/service": tt.want, "/livez": 404, "/proxyMode": 200, "/healthz": 200} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.at))
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != want {
					t.Errorf("%s is %d, want %d", path, w.Code, want)
				}
			}
		})
	}
}

// DNS rebinding must not let a website read pages through a browser; scrapers may use
// any host name.
func TestOtherHostsAreForbidden(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "the page") })
	handler := newWorld(t).server(func(o *ServerOptions) { o.Page = page }).Handler()
	get := func(path, host string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		at := &net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: 10249}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at)))
		return w.Code
	}
	for path, want := range map[string]int{
		"/": 403, "/service": 403, "/configz": 403, "/flagz": 403, "/statusz": 403,
		"/debug/pprof/": 403, "/debug/pprof/heap": 403, "/debug/pprof/cmdline": 403, "/debug/flags": 403, "/debug/flags/v": 403,
		"/metrics": 200, "/metrics/slis": 200, "/healthz": 200, "/healthz/ping": 200, "/proxyMode": 200,
	} {
		if got := get(path, "website.example:10249"); got != want {
			t.Errorf("%s is %d for a website, want %d", path, got, want)
		}
		if got := get(path, "localhost:10249"); got == 403 {
			t.Errorf("%s is not shown by localhost", path)
		}
	}
}
