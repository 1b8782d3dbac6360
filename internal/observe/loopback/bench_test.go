package loopback

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// BenchmarkChange is one endpoint that is replaced by another, among many node
// ports.
func BenchmarkChange(b *testing.B) {
	for _, count := range []int{100, 1000} {
		b.Run(fmt.Sprintf("ports=%d", count), func(b *testing.B) {
			n, d := New(unheard), &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}
			d.Settings.LoopbackIPs = []netip.Addr{here}
			endpoints := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")}
			for i := range count {
				f := nodePort(web, model.IPv4, uint16(20000+i), model.TCP, endpoints[0])
				d.Frontends[f.Key] = f
			}
			still := desires{d}
			n.Committed(&engine.Commit{Change: &plan.Change{Settings: &d.Settings}})
			n.follow(b.Context(), still)
			if n.listening[model.IPv4] != count {
				b.Fatalf("%d ports are listened on, want %d", n.listening[model.IPv4], count)
			}
			for i := 0; b.Loop(); i++ {
				f := nodePort(web, model.IPv4, 20000, model.TCP, endpoints[i%2])
				d.Frontends[f.Key] = f
				n.Committed(&engine.Commit{Change: &plan.Change{Set: []*plan.Frontend{f}}})
				n.follow(b.Context(), still)
			}
			n.keep(nil)
			n.draining.Wait()
		})
	}
}
