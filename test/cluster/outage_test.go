package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/lab"
)

// Flows on which traffic can be counted: new connections and standing ones.
func trafficFlows(services ...*corev1.Service) []lab.Flow {
	var flows []lab.Flow
	for _, service := range services {
		for _, f := range clusterFlows(service) {
			if f.Protocol == lab.TCP {
				flows = append(flows, f)
			}
		}
	}
	return flows
}

func TestTrafficSurvivesAPIServerRestart(t *testing.T) {
	tests := []struct {
		name string
		end  func(*site) error
	}{
		{"killed", func(s *site) error { return s.server.Kill() }},
		{"stopped in good order", func(s *site) error { return s.server.Stop() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := start(t)
			web, shop := s.create("web", "pod1"), s.create("shop", "pod1")
			s.expect("before the restart", answered(clusterFlows(web), "pod1"), answered(clusterFlows(shop), "pod1"))
			stop := s.traffic(trafficFlows(web))
			if err := test.end(s); err != nil {
				t.Fatal(err)
			}
			s.expect("without an API server", answered(clusterFlows(shop), "pod1"))
			s.restart()
			s.setPods("shop", "remote1")
			mail := s.create("mail", "pod3")
			s.expect("after the restart", answered(clusterFlows(shop), "remote1"), answered(clusterFlows(mail), "pod3"))
			stop()
		})
	}
}

// The proxy misses changes that can no longer be sent one by one.
func TestExpiredWatchIsResumed(t *testing.T) {
	s := start(t)
	web, shop := s.create("web", "pod1"), s.create("shop", "pod1")
	s.expect("before", answered(clusterFlows(web), "pod1"), answered(clusterFlows(shop), "pod1"))
	seen, err := s.services().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop := s.traffic(trafficFlows(web))
	s.tunnel.Cut()
	s.delete("shop")
	mail := s.create("mail", "pod3")
	if err := s.server.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Kill(); err != nil { // it has changes in memory, too
		t.Fatal(err)
	}
	s.restart()
	s.wantGone(seen.ResourceVersion)
	s.tunnel.Carry()
	s.expect("after the compaction", s.gone(clusterFlows(shop)), answered(clusterFlows(mail), "pod3"))
	stop()
}

// wantGone checks that a watch from an old version is impossible.
func (s *site) wantGone(version string) {
	s.Helper()
	watcher, err := s.services().Watch(s.Context(), metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		event := <-watcher.ResultChan()
		watcher.Stop()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.Fatalf("watch from version %s: %v, want 410 Gone", version, err)
	}
}

func TestChangesDuringAnOutageAreCaughtUp(t *testing.T) {
	tests := []struct {
		name   string
		outage func(*site)
	}{
		{"connection cut", func(s *site) { s.tunnel.Cut(); s.awaitRefusals(2) }},
		{"connection stalled", func(s *site) { s.tunnel.Stall() }},
	}
	s := start(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &site{t, s.lab, s.server, s.tunnel, s.client, s.proxy}
			web, shop, post := s.create("web", "pod1"), s.create("shop", "pod1"), s.create("post", "pod1")
			s.expect("before the outage", answered(clusterFlows(web), "pod1"),
				answered(clusterFlows(shop), "pod1"), answered(clusterFlows(post), "pod1"))
			stop := s.traffic(trafficFlows(web))
			test.outage(s)
			s.delete("shop")
			s.setPods("post", "remote1")
			mail := s.create("mail", "pod3")
			s.expect("during the outage", answered(clusterFlows(shop), "pod1"), answered(clusterFlows(post), "pod1"),
				s.gone(clusterFlows(mail)))
			s.tunnel.Carry()
			s.expect("after the outage", s.gone(clusterFlows(shop)), answered(clusterFlows(post), "remote1"),
				answered(clusterFlows(mail), "pod3"))
			stop()
			for _, name := range []string{"web", "post", "mail"} {
				s.delete(name)
			}
		})
	}
}

func TestStartDuringOutageKeepsRules(t *testing.T) {
	s := start(t)
	web, shop := s.create("web", "pod1"), s.create("shop", "pod1")
	s.expect("before", answered(clusterFlows(web), "pod1"), answered(clusterFlows(shop), "pod1"))
	stop := s.traffic(trafficFlows(web))
	if err := s.proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	s.tunnel.Cut()
	s.delete("shop")
	s.proxy = s.startProxy()
	s.awaitRefusals(2)
	s.expect("without an API server", answered(clusterFlows(shop), "pod1"))
	s.tunnel.Carry()
	s.expect("with it", s.gone(clusterFlows(shop)), answered(clusterFlows(web), "pod1"))
	stop()
}

// awaitRefusals waits until the proxy has failed that many more times.
func (s *site) awaitRefusals(more int) {
	s.Helper()
	want := s.tunnel.Refused() + more
	s.eventually("the proxy tries to connect", func(context.Context) error {
		if got := s.tunnel.Refused(); got < want {
			return fmt.Errorf("%d connections refused, want %d", got, want)
		}
		return nil
	})
}

func TestSlowConnectionIsEnough(t *testing.T) {
	s := start(t)
	s.tunnel.Slow(200 * time.Millisecond)
	web := s.create("web", "pod1")
	s.expect("a new Service", answered(clusterFlows(web), "pod1"))
	s.delete("web")
	s.expect("the Service deleted", s.gone(clusterFlows(web)))
}

// An unreachable API server is reported everywhere, and so is its return.
func TestOutageIsReported(t *testing.T) {
	s := startWithoutProxy(t)
	web := s.create("web", "pod1")
	socket := filepath.Join(t.TempDir(), "control")
	s.proxy = s.startProxy("--control-socket", socket)
	s.expect("before", answered(clusterFlows(web), "pod1"))
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(args string) func() string {
		return func() string { return s.onNode(path + " " + args + " --control-socket " + socket + "; true") }
	}
	page := func(path string) func() string { return func() string { return s.page(path) } }
	pages := []struct {
		where           string
		see             func() string
		during, without string // an outage
	}{
		{"status", ask("status"), "NOT CONNECTED: the API server has not been reachable for ", "connected for "},
		{"explain", ask("explain default/web"), "OUT OF DATE: the API server has not been reachable for ", "WORKS"},
		{"page", page("/"), "the API server has not been reachable for ", "default/web"},
		{"metrics", page("/metrics"), "\nsluice_api_server_connected 0\n", "\nsluice_api_server_connected 1\n"},
	}
	for _, p := range pages {
		s.await(p.where, p.see, p.without, p.during)
	}
	s.tunnel.Cut()
	for _, p := range pages {
		s.await(p.where+" during an outage", p.see, p.during, "")
	}
	s.tunnel.Carry()
	for _, p := range pages {
		s.await(p.where+" after it", p.see, p.without, p.during)
	}
}

// await waits until there is a text in what is seen, and another is not.
func (s *site) await(what string, see func() string, has, lacks string) {
	s.Helper()
	s.eventually(what, func(context.Context) error {
		if text := see(); !strings.Contains(text, has) || lacks != "" && strings.Contains(text, lacks) {
			return fmt.Errorf("want %q and not %q in\n%s", has, lacks, text)
		}
		return nil
	})
}
