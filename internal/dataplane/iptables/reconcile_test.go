//go:build linux

package iptables

import (
	"context"
	"strings"
	"testing"
)

// A chain that iptables prints in another form than ours is written once more, and not
// forever.
func TestOtherListingFormsAreLearnt(t *testing.T) {
	ctx := context.Background()
	h := newFakeDriver()
	h.form = func(text string) string {
		return strings.ReplaceAll(text, "--probability 0.50000000000", "--probability 0.5")
	}
	ok(t, h.dataplane(t).Reconcile(ctx, variety()))
	d := h.dataplane(t)
	if r := ok(t, d.Reconcile(ctx, variety())); r.Transactions == 0 {
		t.Error("nothing was written, although the listing is not what it should be")
	}
	for range 2 {
		h.generation++ // a foreign write
		if good, err := d.Verify(ctx); err != nil || !good {
			t.Errorf("Verify says %v, %v", good, err)
		}
		if r := ok(t, d.Reconcile(ctx, variety())); r.Transactions != 0 {
			t.Errorf("%d transactions, although nothing changed", r.Transactions)
		}
	}
	// Real damage is still detected.
	for tab, ft := range h.tables {
		if tab.Name == nat {
			ft.chains[servicesChain] = ft.chains[servicesChain][1:]
		}
	}
	h.generation++
	if good, err := d.Verify(ctx); err != nil || good {
		t.Errorf("Verify says %v, %v of a chain without its first rule", good, err)
	}
}
