package dataplane

import (
	"testing"

	"sluice/internal/plan"
)

func TestTrafficSince(t *testing.T) {
	traffic := func(attempts uint64, connections, refused int64) Traffic {
		return Traffic{Attempts: attempts, Connections: connections, Refused: [plan.NumFrontendRefusals]int64{refused}}
	}
	for _, tt := range []struct {
		name        string
		before, now Traffic
		want        Traffic
		ok          bool
	}{
		{"more", traffic(10, 7, 3), traffic(15, 11, 4), traffic(5, 4, 1), true},
		{"nothing", traffic(10, 7, 3), traffic(10, 7, 3), Traffic{}, true},
		{"read while packets came in", traffic(10, 7, 3), traffic(11, 9, 2), traffic(1, 2, 0), true},
		{"reset", traffic(10, 7, 3), traffic(2, 2, 0), Traffic{}, false},
	} {
		if got, ok := tt.now.Since(tt.before); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %+v, %t, want %+v", tt.name, got, ok, tt.want)
		}
	}
}
