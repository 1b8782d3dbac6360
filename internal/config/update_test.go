package config

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that is edited while the proxy runs. What is compared is what is in force
// before and after, and what is said about it.
func TestUpdate(t *testing.T) {
	const cidr = "clusterCIDR: 10.0.0.0/8\n"
	tests := []struct {
		name          string
		before, after string
		live, restart []string // fields
		// changes are what is in force otherwise than before, by field.
		changes map[string]string
	}{
		{name: "the mode, and the defaults that follow from it", before: "mode: nftables\n", after: "mode: iptables\n",
			restart: []string{"mode"}},
		{name: "the mode, the other way", before: "mode: iptables\n", after: "mode: nftables\n", restart: []string{"mode"}},
		{name: "the mode, while its own section changes too",
			before: "mode: nftables\nnftables: {masqueradeBit: 3, minSyncPeriod: 2s}\n", after: "mode: iptables\niptables: {masqueradeAll: true, masqueradeBit: 5, syncPeriod: 1m}\n",
			live: []string{"nftables.masqueradeBit", "nftables.minSyncPeriod"}, restart: []string{"mode"},
			changes: map[string]string{"nftables.masqueradeBit": "14", "nftables.minSyncPeriod": `"0s"`,
				// They have no effect in nftables mode.
				"iptables.masqueradeAll": "true", "iptables.masqueradeBit": "5", "iptables.syncPeriod": `"1m0s"`}},
		{name: "the mode, and what can change at once", before: "mode: nftables\n", after: "mode: iptables\nnodePortAddresses: [10.0.0.0/8]\noomScoreAdj: 5\n",
			live: []string{"nodePortAddresses", "oomScoreAdj"}, restart: []string{"mode"},
			changes: map[string]string{"nodePortAddresses": `["10.0.0.0/8"]`, "oomScoreAdj": "5"}},
		{name: "what an empty mode inherits stays", before: "iptables: {masqueradeAll: true}\n", after: "iptables: {masqueradeAll: true}\noomScoreAdj: 5\n",
			live: []string{"oomScoreAdj"}, changes: map[string]string{"oomScoreAdj": "5"}},
		{name: "feature gates", before: "featureGates: {NativeHistograms: true}\n",
			after: "featureGates: {NativeHistograms: false, AllowServiceExternalIPs: false, ContextualLogging: false}\n",
			live:  []string{"featureGates.AllowServiceExternalIPs"}, restart: []string{"featureGates.ContextualLogging", "featureGates.NativeHistograms"},
			changes: map[string]string{"featureGates": `{"AllowServiceExternalIPs":false,"NativeHistograms":true}`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			flags := parse(t)
			before, err := flags.SettingsWith([]byte(header + cidr + test.before))
			if err != nil {
				t.Fatal(err)
			}
			before.Plan.NodeName = "node1"
			update, err := flags.Update([]byte(header+cidr+test.after), before)
			if err != nil || update.Blocked != nil {
				t.Fatal(err, update.Blocked)
			}
			if diff := cmp.Diff(test.live, changed(update.Live)); diff != "" {
				t.Errorf("changes for the running process (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.restart, changed(update.Restart)); diff != "" {
				t.Errorf("changes for a new process (-want +got):\n%s", diff)
			}
			want := shown(before)
			for path, value := range test.changes {
				want[path] = value
			}
			if diff := cmp.Diff(want, shown(update.InForce)); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
			if update.InForce.Mode.Name != before.Mode.Name || update.InForce.Plan.NodeName != "node1" {
				t.Errorf("in force are mode %s and node %q", update.InForce.Mode.Name, update.InForce.Plan.NodeName)
			}
			if test.changes == nil {
				if diff := cmp.Diff(asJSON(t, before.Plan), asJSON(t, update.InForce.Plan)); diff != "" {
					t.Errorf("what the plan goes by (-before +after):\n%s", diff)
				}
			}

			back, err := flags.Update([]byte(header+cidr+test.before), update.InForce)
			if err != nil || len(back.Restart) > 0 {
				t.Errorf("after the change was taken back, there is still to restart: %v %v", err, back.Restart)
			}
			if diff := cmp.Diff(shown(before), shown(back.InForce)); diff != "" {
				t.Errorf("after the change was taken back (-want +got):\n%s", diff)
			}
		})
	}
}

// shown is what /configz shows of settings.
func shown(s *Settings) map[string]string {
	out := map[string]string{}
	for _, field := range settings {
		out[field.path] = text(at(s.Configuration, field.path))
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestFileForAnotherModeIsBlocked(t *testing.T) {
	flags := parse(t)
	before, err := flags.SettingsWith([]byte(header + "mode: nftables\n"))
	if err != nil {
		t.Fatal(err)
	}
	update, err := flags.Update([]byte(header+"mode: iptables\noomScoreAdj: 5\nnftables: {syncPeriod: -1s}\n"), before)
	if err != nil {
		t.Fatal(err)
	}
	if update.Blocked == nil || update.InForce != before || len(update.Live) > 0 {
		t.Errorf("it is in force: %v, blocked by %v", update.Live, update.Blocked)
	}
	if diff := cmp.Diff([]string{"mode"}, changed(update.Restart)); diff != "" {
		t.Errorf("changes for a new process (-want +got):\n%s", diff)
	}
}
