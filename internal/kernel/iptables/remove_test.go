//go:build linux

package iptables

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns/netnstest"
)

// Without its commands, legacy chains stay and are reported; only then are the
// commands needed at all.
func TestRemoveWithoutLegacyCommands(t *testing.T) {
	for _, tt := range []struct {
		name, chain string
		want        error
	}{
		{"chains of the set", "KUBE-SERVICES", ErrNoLegacy},
		{"foreign chains", "KUBE-FIREWALL", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.New(t)
			for _, table := range TableNames {
				ns.Run(t, "", "iptables-legacy", "-w", "-t", table, "-N", tt.chain)
			}
			want := ns.Run(t, "", "iptables-legacy", "-t", NAT, "-S")
			t.Run("remove", func(t *testing.T) {
				install(t, nil)
				err := RemoveChains(t.Context(), RemoveOptions{
					Logger: logr.Discard(), NetNS: ns.FD(), Variant: Legacy, Families: inet.Families[:], Chains: kubeChains,
				})
				if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), "tables nat, filter, mangle of legacy iptables") {
					t.Errorf("error: %v", err)
				}
			})
			if got := ns.Run(t, "", "iptables-legacy", "-t", NAT, "-S"); got != want {
				t.Errorf("rules are now:\n%s", got)
			}
		})
	}
}
