//go:build linux

package nftables

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// However a pool changes, each endpoint gets one slot, and those that stay and whose slot is still there
// keep it: by whichever way the slots are found.
func TestSlotsFollowThePool(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	endpoints := func() (out []plan.Endpoint) {
		for i := range 40 {
			if rng.IntN(3) > 0 {
				out = append(out, pool(fmt.Sprintf("10.244.0.%d:80", 1+i))...)
			}
		}
		return out
	}
	was := endpoints()
	slots := assignSlots(nil, was)
	for range 1000 {
		want := endpoints()
		if rng.IntN(2) == 0 { // a small difference
			want = slices.Clone(was)
			if n := len(want); n > 0 {
				at := rng.IntN(n)
				want = slices.Delete(want, at, min(at+1+rng.IntN(2), n))
			}
		}
		now := exchangeSlots(slots, was, want)
		if unplaced, _ := unplaced(now, want); len(now) != len(want) || len(unplaced) > 0 {
			t.Fatalf("%v to %v: slots %v are without %v", was, want, now, unplaced)
		}
		for i, ep := range slots[:min(len(slots), len(want))] {
			stays := slices.ContainsFunc(want, func(e plan.Endpoint) bool { return e.AddrPort == ep })
			if stays && now[i] != ep {
				t.Fatalf("%v to %v: slot %d passed from %v to %v", was, want, i, ep, now[i])
			}
		}
		if again := assignSlots(slots, want); len(again) != len(now) {
			t.Fatalf("%d slots, and %d without knowing the pool", len(now), len(again))
		}
		was, slots = want, now
	}
}

// A chain of large pools is for several sizes: it chooses again where a pool has no endpoint, and stays
// when the pool changes.
func TestLargePoolLosesNoConnection(t *testing.T) {
	const connections = 2000
	k := newKernel(t)
	d := k.dataplane()
	f := &plan.Frontend{Key: key("10.96.0.1:80", model.UDP)}
	for i := range largePool + 1 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), 8080)
		f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: at})
	}
	ok(t, d.Reconcile(t.Context(), &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{f.Key: f}}))
	less := *f
	less.Route.Endpoints = f.Route.Endpoints[:largePool/2]
	more := *f
	more.Route.Endpoints = append(slices.Clone(f.Route.Endpoints), pool("10.244.255.1:8080")...)
	for _, step := range []struct {
		to    *plan.Frontend
		chain string
	}{{f, "lb-1025-to-1152"}, {&more, "lb-1025-to-1152"}, {&less, "lb-512"}, {f, "lb-1025-to-1152"}} {
		ok(t, dataplane.ApplyWhole(t.Context(), d, &plan.Change{Set: []*plan.Frontend{step.to}}))
		if listing := k.nft("", "list", "map", "ip", "sluice", services); !strings.Contains(listing, "goto "+step.chain+" ") {
			t.Errorf("%d endpoints:\n%s", len(step.to.Route.Endpoints), listing)
		}
	}
	k.ns.Run(t, "", "ip", "link", "set", "lo", "up")
	k.ns.Run(t, "", "ip", "route", "add", "local", "10.244.0.0/16", "dev", "lo")
	k.ns.Run(t, "", "ip", "route", "add", "10.96.0.0/12", "dev", "lo", "src", "127.0.0.1")
	var server net.PacketConn
	inside := func(f func() error) {
		t.Helper()
		if err := k.ns.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	inside(func() (err error) { server, err = net.ListenPacket("udp4", "0.0.0.0:8080"); return err })
	defer server.Close()
	arrived := 0
	for range connections {
		inside(func() error {
			client, err := net.Dial("udp4", f.Addr.String()+":80")
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = client.Write([]byte("x"))
			return err
		})
		_ = server.SetReadDeadline(time.Now().Add(testkit.Scaled(testkit.Timeout)))
		if _, _, err := server.ReadFrom(make([]byte, 1)); err != nil {
			break
		}
		arrived++
	}
	if arrived != connections {
		t.Errorf("connection %d did not arrive at an endpoint", arrived)
	}
}
