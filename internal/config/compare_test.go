package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	tests := []struct {
		name          string
		old, later    []string
		live, restart []string // fields
	}{
		{name: "nothing"},
		{name: "another way to say the same", old: []string{"--healthz-bind-address=0.0.0.0"}, later: []string{"--proxy-mode=nftables", "--detect-local-mode=ClusterCIDR"}},
		{name: "what has no effect", later: []string{"--enable-dsr", "--ipvs-scheduler=lc", "--feature-gates=APIResponseCompression=false"}},
		{name: "back to the default", old: []string{"--oom-score-adj=0"}, live: []string{"oomScoreAdj"}},
		{name: "several", later: []string{"--masquerade-all", "--healthz-port=0", "-v2", "--log-flush-frequency=1s", "--hostname-override=n"},
			live: []string{"logging.verbosity", "healthzBindAddress", "nftables.masqueradeAll"}, restart: []string{"logging.flushFrequency", "hostnameOverride"}},
		{name: "a feature gate by its stage", later: []string{"--feature-gates=AllAlpha=true,AllBeta=true"},
			live: []string{"featureGates.KubeProxyNFTablesLocalhostNodePorts"}, restart: []string{"featureGates.LoggingAlphaOptions"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old, err := parse(t, test.old...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			later, err := parse(t, test.later...).Settings()
			if err != nil {
				t.Fatal(err)
			}
			live, restart := Compare(old, later)
			if diff := cmp.Diff(test.live, changed(live)); diff != "" {
				t.Errorf("changes for the running process (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.restart, changed(restart)); diff != "" {
				t.Errorf("changes for a new process (-want +got):\n%s", diff)
			}
		})
	}
}

func changed(changes []Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Field)
	}
	return out
}

func TestChangeString(t *testing.T) {
	change := Change{Field: "mode", Old: `"a"`, New: `"b"`, Restart: "it is so"}
	if got, want := change.String(), `mode: "a" is now "b" (it is so)`; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
}
