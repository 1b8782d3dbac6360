package proxy

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/observe/telemetry"
)

func TestDrain(t *testing.T) {
	exclude := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	var log strings.Builder
	p := &proxy{
		options:  &Options{DrainTimeout: time.Minute},
		settings: &config.Settings{ModeSettings: dataplane.ModeSettings{IPVS: dataplane.IPVS{ExcludeCIDRs: exclude}}},
		logger:   funcr.New(func(_, line string) { log.WriteString(line) }, funcr.Options{}),
	}
	registry := metrics.NewKubeRegistry()
	var err error
	if p.metrics, err = telemetry.NewMetrics(registry, dataplane.Mode{}, model.Families[:]); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Minute)
	(&kernel{proxy: p}).drain(t.Context(), dataplane.Mode{Name: "old", Drain: func(_ context.Context, o dataplane.DrainOptions) error {
		if o.Timeout != time.Minute || len(o.IPVS.ExcludeCIDRs) != 1 {
			t.Errorf("options: %+v", o)
		}
		o.Report(dataplane.Draining{Services: 2, Connections: 5, Until: until})
		if diff := cmp.Diff(&dataplane.Draining{Services: 2, Connections: 5, Until: until}, p.draining.Load()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if got := gaugeIn(t, registry, "sluice_draining_connections"); got != 5 {
			t.Errorf("the metric is %v", got)
		}
		o.Report(dataplane.Draining{})
		return errors.New("busy")
	}})
	if left := p.draining.Load(); left != nil {
		t.Errorf("status: %v", left)
	}
	if !strings.Contains(log.String(), `"busy"`) || !strings.Contains(log.String(), `"mode"="old"`) {
		t.Errorf("log: %s", log.String())
	}
}

// gaugeIn returns the value of a gauge without labels.
func gaugeIn(t *testing.T, registry metrics.Gatherer, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
