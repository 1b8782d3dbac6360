package config

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/featuregate"
)

func TestGatesFileIsRead(t *testing.T) {
	gates, err := newGates()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(gatesText) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	if all := gates.GetAll(); len(all) != lines+len(allGates) || lines < 200 {
		t.Errorf("%d gates are known, and the list has %d lines", len(all), lines)
	}
	want := map[featuregate.Feature]bool{
		"AllowServiceExternalIPs": true, "KubeProxyIPVS": true, "NFTablesProxyMode": true, "NFTablesNetlink": true,
		"KubeProxyNFTablesLocalhostNodePorts": false, "ComponentFlagz": true, "ComponentStatusz": true,
		"ContextualLogging": true, "LoggingAlphaOptions": false, "LoggingBetaOptions": true, "NativeHistograms": true,
		"AllAlpha": false, "AllBeta": false, "WatchListClient": true,
	}
	for name, on := range want {
		if gates.GetAll()[name].PreRelease == "" && gates.GetAll()[name] == (featuregate.FeatureSpec{}) {
			t.Errorf("%s is not known", name)
			continue
		}
		if got := gates.Enabled(name); got != on {
			t.Errorf("%s is %t by default, want %t", name, got, on)
		}
	}
	for name := range effectiveGates {
		if _, known := knownGates().specs[name]; !known {
			t.Errorf("%s does something, but is not known", name)
		}
	}
}

// Settings are resolved by several at once, as when the configuration is read anew while somebody asks.
func TestGatesAreMadeAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := newGates(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestSettingFeatureGates(t *testing.T) {
	tests := []struct {
		name, in string
		on, off  []featuregate.Feature
		notes    []string // fields
	}{
		{name: "one that matters", in: "AllowServiceExternalIPs=false", off: []featuregate.Feature{AllowServiceExternalIPs}},
		{name: "one that does not", in: "APIResponseCompression=false",
			off: []featuregate.Feature{"APIResponseCompression"}, notes: []string{"featureGates.APIResponseCompression"}},
		{name: "one that is locked, to what it is", in: "WinDSR=true", on: []featuregate.Feature{"WinDSR"}, notes: []string{"featureGates.WinDSR"}},
		{name: "those of releases since 1.31 that are gone", in: "CloudDualStackNodeIPs=true,ServerSideApply=false,TopologyAwareHints=true",
			notes: []string{"featureGates.CloudDualStackNodeIPs", "featureGates.ServerSideApply", "featureGates.TopologyAwareHints"}},
		{name: "all of a stage", in: "AllAlpha=true,AllBeta=true,KubeProxyNFTablesLocalhostNodePorts=false",
			on: []featuregate.Feature{"LoggingAlphaOptions"}, off: []featuregate.Feature{"KubeProxyNFTablesLocalhostNodePorts"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(t, "--cluster-cidr=10.0.0.0/8", "--feature-gates="+test.in).Settings()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range test.on {
				if !s.Features.Enabled(name) {
					t.Errorf("%s is off", name)
				}
			}
			for _, name := range test.off {
				if s.Features.Enabled(name) {
					t.Errorf("%s is on", name)
				}
			}
			if diff := cmp.Diff(test.notes, fields(t, s.Notes)); diff != "" {
				t.Errorf("fields with a note (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFeatureGatesThatCannotBeSet(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"not known", "Zeta=true,Alpha=false", []string{"featureGates.Alpha", "featureGates.Zeta"}},
		{"locked", "WinDSR=false,NFTablesProxyMode=false", []string{"featureGates.NFTablesProxyMode", "featureGates.WinDSR"}},
		{"needs another, as with upstream", "AllAlpha=true", []string{"featureGates"}},
		{"needs another that is off", "GracefulNodeShutdown=false,WindowsGracefulNodeShutdown=true", []string{"featureGates"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, "--feature-gates="+test.in).Settings()
			var errs Errors
			if !errors.As(err, &errs) {
				t.Fatalf("error is %v, want an Errors", err)
			}
			if diff := cmp.Diff(test.want, fields(t, errs)); diff != "" {
				t.Errorf("fields with an error (-want +got):\n%s", diff)
			}
		})
	}
}
