//go:build linux

package iptables

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// swallower takes everything, at no cost.
type swallower struct {
	*fakeDriver
	bytes int64
}

func (s *swallower) Restore(_ context.Context, _ model.Family, input io.Reader) error {
	n, err := io.Copy(io.Discard, input)
	s.generation++
	s.bytes += n
	return err
}

// BenchmarkBigPool replaces one of many endpoints of a Service.
func BenchmarkBigPool(b *testing.B) {
	for _, count := range []int{1_000, 5_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s := &swallower{fakeDriver: newFakeDriver()}
			d := s.dataplane(b)
			d.driver = s
			f := &plan.Frontend{Key: plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP},
				Service: model.Name{Namespace: "default", Name: "web"}}
			with := func(changes int) *plan.Frontend {
				next := *f
				next.Route.Endpoints = make([]plan.Endpoint, count)
				for i := range next.Route.Endpoints {
					ip := [4]byte{10, 244, byte(i >> 8), byte(i)}
					if i == count/2 {
						ip = [4]byte{10, 245, byte(changes >> 8), byte(changes)}
					}
					next.Route.Endpoints[i].AddrPort = netip.AddrPortFrom(netip.AddrFrom4(ip), 8080)
				}
				return &next
			}
			desired := &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{f.Key: with(0)}, Settings: plan.Settings{MasqueradeMark: 1 << 14}}
			if r := d.Reconcile(b.Context(), desired); r.Err != nil {
				b.Fatal(r.Err)
			}
			s.bytes = 0
			changes := 0
			b.ReportAllocs()
			for b.Loop() {
				changes++
				if r := d.Apply(b.Context(), &plan.Change{Set: []*plan.Frontend{with(changes)}}); r.Err != nil || len(r.Failed) > 0 {
					b.Fatal(r.Err, r.Failed)
				}
			}
			b.ReportMetric(float64(s.bytes)/float64(changes), "written-B/op")
		})
	}
}
