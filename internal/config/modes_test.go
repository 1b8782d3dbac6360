package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/plan"
)

// inForce is what follows from the mode.
type inForce struct {
	Mode                v1alpha1.ProxyMode
	Written             v1alpha1.ProxyMode // in the configuration
	Unset               bool
	NodePorts           plan.NodePortAddresses
	MasqueradeAll       bool
	MasqueradeBit       uint8
	DropInvalid         bool
	SyncPeriod, Minimum time.Duration
}

func TestEmptyModeDependsOnTheNode(t *testing.T) {
	const section = "iptables: {masqueradeAll: true, masqueradeBit: 9, minSyncPeriod: 5s, syncPeriod: 1m}\n"
	primary := plan.NodePortAddresses{Primary: true}
	all := plan.NodePortAddresses{All: true, Loopback: loopbackAddresses[:1]}
	second, half := time.Second, 30*time.Second
	tests := []struct {
		name, file string
		node       v1alpha1.ProxyMode
		want       inForce
	}{
		{"iptables, with all its defaults", "", "iptables",
			inForce{"iptables", "iptables", true, all, false, 14, true, half, second}},
		{"nftables, with all its defaults", "", "nftables",
			inForce{"nftables", "nftables", true, primary, false, 14, false, half, 0}},
		{"the node is unknown", "", "",
			inForce{"nftables", "nftables", true, primary, false, 14, false, half, 0}},
		{"iptables, and its section", section, "iptables",
			inForce{"iptables", "iptables", true, all, true, 9, true, time.Minute, 5 * second}},
		{"nftables goes by the iptables section", section, "nftables",
			inForce{"nftables", "nftables", true, primary, true, 9, false, time.Minute, 5 * second}},
		{"the nftables section counts first", section + "nftables: {masqueradeBit: 8, syncPeriod: 2m, minSyncPeriod: 3s}\n", "nftables",
			inForce{"nftables", "nftables", true, primary, true, 8, false, 2 * time.Minute, 3 * second}},
		{"a least period of iptables' default is no wish", "iptables: {minSyncPeriod: 1s}\n", "nftables",
			inForce{"nftables", "nftables", true, primary, false, 14, false, half, 0}},
		{"a mode that is set stays: iptables", "mode: iptables\n", "nftables",
			inForce{"iptables", "iptables", false, all, false, 14, true, half, second}},
		{"a mode that is set stays: nftables, and inherits nothing", "mode: nftables\n" + section, "iptables",
			inForce{"nftables", "nftables", false, primary, false, 14, false, half, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			flags := parse(t, file(t, "clusterCIDR: 10.0.0.0/8\n"+test.file))
			flags.EmptyMode = test.node
			s, err := flags.Settings()
			if err != nil {
				t.Fatal(err)
			}
			got := inForce{v1alpha1.ProxyMode(s.Mode.Name), s.Configuration.Mode, s.WrittenMode == "", s.Plan.NodePortAddresses, s.Plan.MasqueradeAll,
				s.Plan.MasqueradeBit, s.Plan.DropInvalid, s.SyncPeriod, s.MinSyncPeriod}
			if diff := cmp.Diff(test.want, got, compare); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
			if len(s.Warnings) > 0 {
				t.Errorf("warnings: %v", s.Warnings)
			}
		})
	}
}

// What is written out for one mode says nothing of another.
func TestNFTablesSectionIsKeptInIPTablesMode(t *testing.T) {
	flags := parse(t, file(t, "iptables: {masqueradeAll: true, masqueradeBit: 9, syncPeriod: 1m}\n"))
	flags.EmptyMode = "iptables"
	s, err := flags.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(New().NFTables, s.Configuration.NFTables); diff != "" {
		t.Errorf("section nftables (-want +got):\n%s", diff)
	}
}
