package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/model"
)

// crowd are Services that together are several portions.
func crowd(version uint32) (events []model.Event) {
	for i := range 3 * portion {
		events = append(events, web(fmt.Sprintf("10.1.%d.%d", i/250, i%250), version))
	}
	return events
}

// TestSmallChangeGoesBeforeTheRestOfALargeOne follows a change that arrives while the first portion
// of a large one is written: it is in the second, and the large one goes on without waiting for the sync period.
func TestSmallChangeGoesBeforeTheRestOfALargeOne(t *testing.T) {
	run(t, Options{MinSyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		var commits []*Commit
		b.observe(func(c *Commit) { commits = append(commits, c) })
		b.sync()
		time.Sleep(time.Hour)
		synctest.Wait()
		commits = nil
		release := b.kernel.holdCommits()
		b.Update(crowd(0)...)
		synctest.Wait()
		time.Sleep(time.Second)
		arrived := time.Now()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		if s := b.Status(); s.Pending != 3*portion || s.PendingSince.Equal(arrived) {
			t.Errorf("%d frontends are pending since %s", s.Pending, s.PendingSince)
		}
		release()
		synctest.Wait()
		calls := b.kernel.taken()
		if len(calls) < 3 || !strings.HasPrefix(calls[1].What, "10.0.0.1 ") {
			t.Fatalf("the second of %d commits begins with %.40s, want the small change", len(calls), calls[1].What)
		}
		if c := commits[1]; c.Waiting == 0 || !c.Events.Since.Before(arrived) {
			t.Errorf("%d frontends wait, the oldest that were written arrived %s", c.Waiting, c.Events.Since)
		}
		events := 0
		for _, c := range commits {
			events += c.Events.Services
		}
		if events != 3*portion+1 {
			t.Errorf("%d events were observed, want %d", events, 3*portion+1)
		}
		s := b.Status()
		if s.Pending != 0 || !s.PendingSince.IsZero() || s.ProgrammedRevision != s.DesiredRevision || s.Programmed != 3*portion+1 {
			t.Errorf("status at the end: %+v", s)
		}
	})
}

// TestRevisionIsProgrammedWhenAllOfItIs: a portion is not the revision.
func TestRevisionIsProgrammedWhenAllOfItIs(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		var waiting []int
		b.observe(func(c *Commit) {
			if s := b.Status(); (c.Waiting == 0) != (s.ProgrammedRevision == s.DesiredRevision) || s.Pending > c.Waiting {
				t.Errorf("%d frontends wait, status: %+v", c.Waiting, s)
			}
			waiting = append(waiting, c.Waiting)
		})
		b.sync()
		b.Update(crowd(0)...)
		synctest.Wait()
		if len(waiting) < 3 {
			t.Errorf("there were %d commits", len(waiting))
		}
	})
}

// TestFailedPortionIsReconciledWithTheRest: a portion that fails is not lost, nor what waits.
func TestFailedPortionIsReconciledWithTheRest(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(crowd(0)...)
		synctest.Wait()
		b.kernel.failWith(nil)
		b.kernel.taken()
		time.Sleep(time.Minute)
		calls := b.kernel.taken()
		if len(calls) != 1 || calls[0].Verb != "reconcile" {
			t.Errorf("%d calls, the first is %s", len(calls), calls[0].Verb)
		}
		if n := strings.Count(b.kernel.content(), "10.1."); n != 3*portion {
			t.Errorf("the kernel has %d frontends, want %d", n, 3*portion)
		}
	})
}

// zonal are Services with an endpoint in each of two zones, each of which prefers its own, and with
// source ranges that may admit the node.
func zonal() (events []model.Event) {
	for i, event := range crowd(0) {
		service := *event.(model.SetService).Service
		service.Ports = []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: uint16(30000 + i)}}
		service.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i % 250)})}
		service.Filtered, service.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")}
		slice := &model.Slice{Name: service.Name, Service: service.Name.Name, Family: model.IPv4,
			Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
		for zone, addr := range map[string]string{"east": "10.2.0.1", "west": "10.2.0.2"} {
			slice.Endpoints = append(slice.Endpoints, model.Endpoint{
				Addr: netip.MustParseAddr(addr), Conditions: model.Ready | model.Serving, Hints: &model.Hints{Zones: []string{zone}}})
		}
		slices.SortFunc(slice.Endpoints, func(a, b model.Endpoint) int { return a.Addr.Compare(b.Addr) })
		events = append(events, model.SetService{Service: &service}, model.SetSlice{Slice: slice})
	}
	return events
}

// TestNodeEventDoesNotHoldUpSmallChanges: what arrives while all Services are written, because the node
// has moved to another zone or has other addresses, is in the next portion.
func TestNodeEventDoesNotHoldUpSmallChanges(t *testing.T) {
	east := &model.Node{Name: "here", Zone: "east", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	west, renumbered := *east, *east
	west.Zone, renumbered.IPs = "west", []netip.Addr{netip.MustParseAddr("10.3.0.1")}
	for name, event := range map[string]model.Event{
		"zone":      model.SetNode{Node: &west},
		"addresses": model.SetNode{Node: &renumbered},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Options{}, func(t *testing.T, b *fixture) {
				b.kernel.portion = 200
				b.Update(append(zonal(), model.SetNode{Node: east})...)
				b.sync()
				release := b.kernel.holdCommits()
				b.Update(event)
				synctest.Wait()
				if s := b.Status(); s.Pending < 2*b.kernel.portion {
					t.Fatalf("the event concerns %d frontends only", s.Pending)
				}
				b.Update(web("10.0.0.1", 0))
				moved := web("10.1.0.7", 3)
				b.Update(moved) // of the Services that all are written
				synctest.Wait()
				release()
				synctest.Wait()
				calls := b.kernel.taken()
				if len(calls) < 3 {
					t.Fatalf("there were %d commits", len(calls))
				}
				for _, want := range []string{"10.0.0.1 ", "10.1.0.7 "} {
					if !strings.Contains(calls[1].What+" ", want) {
						t.Errorf("the second of %d commits is without %s: %.60s", len(calls), want, calls[1].What)
					}
				}
			})
		})
	}
}

// TestModeSaysHowLargePortionsAre: a mode for which a commit has a high price gets more at a time.
func TestModeSaysHowLargePortionsAre(t *testing.T) {
	for size, want := range map[int]int{portion / 2: 6, 2 * portion: 2, 10 * portion: 1} {
		run(t, Options{}, func(t *testing.T, b *fixture) {
			b.kernel.portion = size
			b.sync()
			b.Update(crowd(0)...)
			synctest.Wait()
			if n := len(b.kernel.taken()); n != want {
				t.Errorf("%d commits of %d frontends each, want %d", n, size, want)
			}
		})
	}
}
