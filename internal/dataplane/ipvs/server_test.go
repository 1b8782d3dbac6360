//go:build linux

package ipvs

import (
	"testing"

	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestSchedulers(t *testing.T) {
	for _, tt := range []struct {
		byDefault string
		algorithm model.Algorithm
		weighted  bool
		want      string
	}{
		{"rr", model.Random, false, "rr"},
		{"rr", model.Random, true, "wrr"},
		{"sh", model.Random, true, "sh"},
		{"lc", model.Random, true, "wlc"},
		{"sh", model.RoundRobin, false, "rr"},
		{"sh", model.RoundRobin, true, "wrr"},
		{"sh", model.LeastConnections, false, "lc"},
		{"rr", model.LeastConnections, true, "wlc"},
	} {
		r := &plan.Route{Algorithm: tt.algorithm, Balancer: &plan.Balancer{Default: tt.byDefault}, Endpoints: dataplanetest.Endpoints("10.244.0.1:80")}
		if tt.weighted {
			r.Endpoints[0].Weight = 3
		}
		if got := schedulerFor(r); got != tt.want {
			t.Errorf("%s by default, %s, weighted %v: %s, want %s", tt.byDefault, tt.algorithm, tt.weighted, got, tt.want)
		}
	}
}
