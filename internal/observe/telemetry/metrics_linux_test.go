package telemetry

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack"
	"sluice/internal/plan"
)

// everything makes a world with a value of every metric.
func everything(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	f := frontend("10.96.0.1", web)
	w.desired.Frontends[f.Key] = f
	w.updater.Watch(&sink{}).Update(model.SetService{Service: &model.Service{Name: web}})
	w.clock.Step(time.Minute)
	w.reconcile(time.Second, set(f))
	w.committed(time.Second, engine.Commit{Kind: engine.Apply, Change: set(f),
		Events: engine.Events{
			Since: morning.Add(time.Second), Triggers: []engine.Trigger{{Family: model.IPv4, At: morning.Add(time.Second)}},
		},
		Result: dataplane.Result{Failed: map[plan.Key]error{f.Key: errors.New("refused")}}})
	far := plan.DirectNode{Name: "far", IPv4: model.Path{Addr: netip.MustParseAddr("192.0.2.2"), State: model.PathSilent}}
	w.committed(time.Second, engine.Commit{Kind: engine.Apply,
		Change: &plan.Change{Settings: &plan.Settings{DirectReturn: &plan.DirectReturn{Nodes: []plan.DirectNode{far}}}}})
	w.metrics.DirectReturnProbed(true)
	w.metrics.DirectReturnCounter()(dataplane.Handed{From: map[string]uint64{"far": 1}})
	w.desired.Problems[model.ServiceObject(web)] = []model.Problem{{Code: "direct-return-sctp"}}
	w.updater.OnPass(conntrack.Pass{Duration: time.Second})
	w.metrics.Answered("/healthz", 200)
	w.metrics.Answered("/livez", 503)
	w.updater.Refresh()
	return w
}

// TestMetricsArePinned pins the metrics of dashboards and alerts. Those named
// kubeproxy_ are upstream's and must not change.
func TestMetricsArePinned(t *testing.T) {
	comparePinned(t, "testdata/metrics.txt", everything(t).registry)
}

// comparePinned compares the metrics of a registry with a list.
func comparePinned(t *testing.T, file string, registry metrics.Gatherer) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		words := []string{family.GetName(), strings.ToLower(family.GetType().String())}
		for _, l := range family.GetMetric()[0].GetLabel() {
			words = append(words, l.GetName())
		}
		line := strings.Join(words, " ")
		if h := family.GetMetric()[0].GetHistogram(); h != nil {
			line += ":"
			for _, b := range h.GetBucket() {
				line += fmt.Sprintf(" %g", b.GetUpperBound())
			}
		}
		got = append(got, line)
		if !strings.HasPrefix(family.GetHelp(), "[ALPHA] ") {
			t.Errorf("%s is of another stability: %q", family.GetName(), family.GetHelp())
		}
	}
	pinned, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(pinned)) {
		if !strings.HasPrefix(line, "#") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestEveryRegisteredMetricIsFed(t *testing.T) {
	w := everything(t)
	for _, m := range append(w.metrics.ofEveryMode(), w.metrics.ofMode(nftables.Mode)...) {
		if len(w.values(m.FQName())) == 0 {
			t.Errorf("%s has no value after all there is to measure happened", m.FQName())
		}
	}
}

func TestAModeHasItsOwnMetrics(t *testing.T) {
	tests := []struct {
		mode dataplane.Mode
		want bool
	}{{nftables.Mode, true}, {iptables.Mode, false}}
	for _, tt := range tests {
		t.Run(tt.mode.Name, func(t *testing.T) {
			registry := metrics.NewKubeRegistry()
			m, err := NewMetrics(registry, tt.mode, model.Families[:])
			if err != nil {
				t.Fatal(err)
			}
			m.syncFailures.WithLabelValues("IPv4").Inc()
			m.commitFailures.WithLabelValues().Inc()
			got := values(t, registry, "kubeproxy_sync_proxy_rules_nftables_sync_failures_total")
			if has := len(got) > 0; has != tt.want {
				t.Errorf("metrics of nftables: %v, want %v", has, tt.want)
			}
			if len(values(t, registry, "sluice_commit_failures_total")) == 0 {
				t.Error("the metrics of every mode are missing")
			}
		})
	}
}

func TestMetricsRegisteredTwiceAreAnError(t *testing.T) {
	w := newWorld(t)
	_, err := NewMetrics(w.registry, nftables.Mode, model.Families[:])
	if err == nil || !strings.Contains(err.Error(), "sluice_frontends") {
		t.Errorf("error is %v", err)
	}
}

func TestHealthAnswersAreCounted(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.metrics.Answered("/healthz", 200)
	}
	w.metrics.Answered("/healthz", 503)
	w.metrics.Answered("/livez", 200)
	w.want("kubeproxy_proxy_healthz_total", "200 3", "503 1")
	w.want("kubeproxy_proxy_livez_total", "200 1")
}

// fillProcessRegistry runs once in a process, however often a test is run.
var fillProcessRegistry = sync.OnceValue(func() error {
	m, err := NewMetrics(ProcessRegistry(), nftables.Mode, model.Families[:])
	m.Answered("/healthz", 200)
	return err
})

func TestProcessMetrics(t *testing.T) {
	if err := fillProcessRegistry(); err != nil {
		t.Fatal(err)
	}
	families, err := ProcessRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
	}
	for _, want := range []string{
		"process_start_time_seconds", "go_goroutines", "kubeproxy_proxy_healthz_total",
		"registered_metrics_total", "hidden_metrics_total", "disabled_metrics_total",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestDrainingConnections(t *testing.T) {
	w := newWorld(t)
	w.want("sluice_draining_connections", "0")
	w.metrics.Draining(7)
	w.want("sluice_draining_connections", "7")
}
