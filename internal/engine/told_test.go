package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// told is what commits add up to, whatever the kernel refused of them.
type told struct {
	t         *testing.T
	frontends map[plan.Key]*plan.Frontend
	commits   int
	// What happened, for the test to mean anything: changes of what was changed before, removals, and
	// removals of what nobody was told of.
	changed, removed, unheard int
}

// Committed checks that the commit says of each frontend what it was when it was told of last, and that
// it knows all frontends of its Services.
func (o *told) Committed(c *Commit) {
	o.commits++
	keys := map[plan.Key]struct{}{}
	services := map[model.Name]struct{}{}
	replace := func(key plan.Key, now *plan.Frontend) {
		was := o.frontends[key]
		if before := c.Change.Before[key]; before != was {
			o.t.Errorf("commit %d: %s is said to have been %+v, and was %+v", o.commits, key, before, was)
		}
		for _, f := range []*plan.Frontend{was, now} {
			if f != nil {
				services[f.Service] = struct{}{}
			}
		}
		if _, twice := keys[key]; twice {
			o.t.Errorf("commit %d: %s is in it twice", o.commits, key)
		}
		keys[key] = struct{}{}
		switch {
		case now == nil && was == nil:
			o.unheard++
		case now == nil:
			o.removed++
		case was != nil && was != now:
			o.changed++
		}
		if o.frontends[key] = now; now == nil {
			delete(o.frontends, key)
		}
	}
	for _, f := range slices.Concat(c.Change.Set, c.Change.Serving) {
		replace(f.Key, f)
	}
	for _, key := range c.Change.Removed {
		replace(key, nil)
	}
	for key := range c.Change.Before {
		if _, is := keys[key]; !is {
			o.t.Errorf("commit %d: it says what %s was, and does not change it", o.commits, key)
		}
	}
	for service := range services {
		o.wantAll(c, service)
	}
}

// wantAll checks the frontends of a Service.
func (o *told) wantAll(c *Commit, service model.Name) {
	var want []*plan.Frontend
	for _, f := range o.frontends {
		if f.Service == service {
			want = append(want, f)
		}
	}
	byKey := func(a, b *plan.Frontend) int { return a.Key.Compare(b.Key) }
	slices.SortFunc(want, byKey)
	if got := slices.SortedFunc(slices.Values(c.Frontends(service)), byKey); !slices.Equal(got, want) {
		o.t.Errorf("commit %d: %s has the frontends\n%v, want\n%v", o.commits, service, got, want)
	}
}

// TestBeforeIsWhatObserversWereToldLast: through changes that are combined, cut into portions, left, refused,
// tried again and taken back, each commit says of each frontend what it was in the last commit about it.
func TestBeforeIsWhatObserversWereToldLast(t *testing.T) {
	var changed, removed, unheard int
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			run(t, Options{SyncPeriod: 10 * time.Second}, func(t *testing.T, b *fixture) {
				o := &told{t: t, frontends: map[plan.Key]*plan.Frontend{}}
				b.Observe(o)
				if seed%4 > 0 {
					b.kernel.portion = 4 * int(seed%4)
				}
				chance := rand.New(rand.NewPCG(seed, 0))
				b.kernel.unruly(rand.New(rand.NewPCG(seed, 1)))
				b.kernel.configure(func(d *fakeDataplane) {
					lazy := rand.New(rand.NewPCG(seed, 2))
					d.leave = func(plan.Key) bool { return lazy.IntN(5) == 0 }
				})
				for step := range 400 {
					if step == 5 {
						b.Synced()
					}
					b.Update(randomEvents(chance)...)
					time.Sleep(time.Duration(chance.IntN(600)) * ms)
				}
				b.kernel.configure(func(d *fakeDataplane) { d.calm(); d.leave = nil })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				b.Inspect(func(v View) {
					if !maps.Equal(o.frontends, v.Desired.Frontends) {
						t.Errorf("observers were told of\n%v\nand desired is\n%v", o.frontends, v.Desired.Frontends)
					}
				})
				changed, removed, unheard = changed+o.changed, removed+o.removed, unheard+o.unheard
			})
		})
	}
	if changed < 1000 || removed < 1000 || unheard < 100 {
		t.Errorf("too little happened: %d changes, %d removals, %d of what nobody knew", changed, removed, unheard)
	}
}

// randomEvents are about one of a few Services, which may have external addresses in common.
func randomEvents(chance *rand.Rand) (events []model.Event) {
	for range 1 + chance.IntN(3) {
		id := byte(chance.IntN(8))
		name := model.Name{Namespace: fmt.Sprint("ns", id%2), Name: fmt.Sprint("web", id)}
		slice := model.Name{Namespace: name.Namespace, Name: name.Name + "-1"}
		switch chance.IntN(6) {
		case 0:
			events = append(events, model.DeleteService{Name: name})
		case 1:
			events = append(events, model.DeleteSlice{Name: slice})
		case 2, 3:
			s := &model.Service{Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, id + 1})}, Affinity: uint32(chance.IntN(2))}
			s.Created = time.Unix(int64(chance.IntN(4)), 0)
			for port := range 1 + chance.IntN(3) {
				s.Ports = append(s.Ports, model.ServicePort{Name: fmt.Sprint("p", port), Protocol: model.TCP, Port: uint16(80 + port)})
			}
			for range chance.IntN(3) {
				s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{192, 0, 2, byte(chance.IntN(3))}))
			}
			events = append(events, model.SetService{Service: s})
		default:
			s := &model.Slice{Name: slice, Service: name.Name, Family: model.IPv4}
			for port := range 3 {
				s.Ports = append(s.Ports, model.SlicePort{Name: fmt.Sprint("p", port), Protocol: model.TCP, Port: 8080})
			}
			for i := range chance.IntN(5) {
				s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, id, byte(i)}),
					Conditions: []model.Conditions{0, model.Ready | model.Serving, model.Serving | model.Terminating}[chance.IntN(3)]})
			}
			events = append(events, model.SetSlice{Slice: s})
		}
	}
	return events
}
