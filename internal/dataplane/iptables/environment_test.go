//go:build linux

package iptables

import (
	"testing"

	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// Any valid name of an interface in a configuration is written, and listed again, as it is.
func TestInterfaceNames(t *testing.T) {
	testkit.NotInGuest(t, "it runs very many programs of iptables")
	inEachVariant(t, func(t *testing.T, k *kernel) {
		for _, name := range []string{"br0", "exactly-15-byte", "br+", "*", "-x", "!x", "#x", "a;b", "ü"} {
			for _, detector := range []plan.Detector{{Interface: name}, {InterfacePrefix: name}} {
				desired := variety()
				desired.Settings.IPv4, desired.Settings.IPv6 = detector, detector
				k.reconcileOnce(desired)
				if r := k.reconcileOnce(desired); r.Transactions != 0 {
					t.Errorf("rules for %+v were written again", detector)
				}
			}
		}
	})
}
