//go:build linux

package nftables

import (
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/testkit"
)

// An unprivileged process gets small buffers only, which its transactions must fit
// into.
func TestTransactionsFitSmallBuffers(t *testing.T) {
	testkit.NotInGuest(t, "it writes very many elements")
	k := newKernel(t)
	open := func() *Dataplane {
		d, err := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD(), SendBuffer: 212_992}) // net.core.wmem_max, for long
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	d := open()
	if d.bound >= maxElements {
		t.Fatalf("%d elements fit a transaction: the buffer is not small", d.bound)
	}
	ok(t, d.Reconcile(t.Context(), cluster(3000)))
	ok(t, open().Reconcile(t.Context(), cluster(3)))
	// Another process adopts the table, and removes what is not desired.
	ok(t, open().Reconcile(t.Context(), stickyServices(1500)))
	d = open()
	ok(t, d.Reconcile(t.Context(), variety()))
	if found, err := d.differs(t.Context()); err != nil || !found.empty() {
		t.Errorf("%v differs, %v", found, err)
	}
}
