//go:build linux

package iptables

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/kernel/iptables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// shares adds up, by endpoint, the probability that a packet to web reaches it
// through a chain.
func (t *fakeTable) shares(chain string, p packet, probability float64, into map[string]float64) (left float64) {
	for _, r := range t.chains[chain] {
		head, chance, random := strings.Cut(r, "-m statistic --mode random --probability ")
		w := walk{fakeTable: t, packet: p}
		if !w.matches(head) {
			continue
		}
		part := probability
		if random {
			share, _ := strconv.ParseFloat(strings.Fields(chance)[0], 64)
			part *= share
		}
		fields := strings.Fields(r)
		switch to := target(r); {
		case strings.HasPrefix(to, "KUBE-"):
			rest := t.shares(to, p, part, into)
			probability -= part
			if fields[len(fields)-2] == "-j" {
				probability += rest
			}
		case to == "MARK":
		default:
			into[fields[len(fields)-1]] += part
			probability -= part
		}
	}
	return probability
}

// Weights are exact, in pools of one chain and of many, also after they changed.
func TestWeightsAreExact(t *testing.T) {
	for _, n := range []int{2, 5, 300} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			desired := cluster(1, n)
			var f *plan.Frontend
			for _, f = range desired.Frontends {
			}
			h := newFakeDriver()
			d := h.dataplane(t)
			ok(t, d.Reconcile(context.Background(), desired))
			for round := range 3 {
				changed := *f
				changed.Route.Endpoints = make([]plan.Endpoint, n)
				sum := 0
				for i, e := range f.Route.Endpoints {
					e.Weight = uint16(1 + (i+round)*(i+7*round)%1000)
					sum += int(e.Weight)
					changed.Route.Endpoints[i] = e
				}
				ok(t, d.Apply(context.Background(), &plan.Change{Set: []*plan.Frontend{&changed}}))
				got := map[string]float64{}
				h.tables[iptables.Table{Family: model.IPv4, Name: nat}].shares(servicesChain,
					packet{netip.AddrPortFrom(f.Addr, f.Key.Port), f.Protocol}, 1, got)
				for _, e := range changed.Route.Endpoints {
					if want := float64(e.Weight) / float64(sum); math.Abs(got[e.AddrPort.String()]-want) > 1e-6 {
						t.Fatalf("round %d: %v gets %.8f, want %.8f", round, e.AddrPort, got[e.AddrPort.String()], want)
					}
				}
			}
		})
	}
}
