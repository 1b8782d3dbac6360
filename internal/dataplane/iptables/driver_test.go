//go:build linux

package iptables

import (
	"context"
	"errors"
	"testing"

	"sluice/internal/model"
)

// Features that are not available fail the frontends that need them, and no other.
func TestMissingFeaturesFailTheirUsers(t *testing.T) {
	d := newFakeDriver().dataplane(t)
	d.features.Recent, d.features.SCTP = false, false
	d.families = []model.Family{model.IPv4}
	r := d.Reconcile(context.Background(), variety())
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for k, f := range variety().Frontends {
		var want error
		switch {
		case k.Family() == model.IPv6:
			want = errNoFamily
		case f.Affinity > 0:
			want = errNoAffinity
		case k.Protocol == model.SCTP:
			want = errNoSCTP
		}
		if !errors.Is(r.Failed[k], want) {
			t.Errorf("%s: failed with %v, want %v", k, r.Failed[k], want)
		}
	}
}
