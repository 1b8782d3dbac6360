package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// TestRandomFailuresEndAsDesired lets several sources change
// Services in a kernel that fails, refuses, is slow and is disturbed, all by
// chance. When that is over the kernel, what observers saw and the
// status must agree with what is desired, and that with a plan from scratch.
func TestRandomFailuresEndAsDesired(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			observed := observer{}
			o := Options{SyncPeriod: 10 * time.Second}
			if seed%2 == 1 {
				o.MinSyncPeriod = time.Second
			}
			run(t, o, func(t *testing.T, b *fixture) {
				b.Observe(observed)
				if seed%4 < 2 {
					b.kernel.portion = 2 // nearly all commits are portions
				}
				final := b.chaos(seed)
				b.kernel.configure(func(d *fakeDataplane) { d.calm() })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				b.wantAgreement(t, observed, final)
			})
		})
	}
}

// chaos runs three sources for two minutes, and returns what there is at the
// end.
func (b *fixture) chaos(seed uint64) (final map[model.Name]model.SetService) {
	b.kernel.unruly(rand.New(rand.NewPCG(seed, 0)))
	final = map[model.Name]model.SetService{}
	var mu sync.Mutex
	var sources sync.WaitGroup
	sinks := []model.Sink{b.AddSource("a"), b.AddSource("b"), b.AddSource("c")}
	for id, sink := range sinks {
		chance := rand.New(rand.NewPCG(seed, uint64(id)+1))
		sources.Go(func() {
			for step := range 200 {
				if step == 10 {
					sink.Synced()
				}
				addr := netip.AddrFrom4([4]byte{10, 0, byte(id), byte(chance.IntN(12))}).String()
				service := web(addr, uint32(chance.IntN(3)))
				mu.Lock()
				if chance.IntN(3) > 0 {
					final[service.Name] = service
					sink.Update(service)
				} else {
					delete(final, service.Name)
					sink.Update(noWeb(addr))
				}
				mu.Unlock()
				time.Sleep(time.Duration(chance.IntN(1200)) * ms)
			}
		})
	}
	sources.Wait()
	return final
}

// unruly makes the kernel do what kernels do on a bad day.
func (d *fakeDataplane) unruly(chance *rand.Rand) {
	d.configure(func(d *fakeDataplane) {
		d.delay = func() time.Duration { return time.Duration(chance.IntN(500)) * ms }
		d.fail = func() error {
			if chance.IntN(8) == 0 { // a foreign change
				for key := range d.frontends {
					delete(d.frontends, key)
					break
				}
				select {
				case d.disturbed <- struct{}{}:
				default:
				}
			}
			if chance.IntN(4) == 0 {
				return errBroken
			}
			return nil
		}
		d.refuse = func(plan.Key) error {
			if chance.IntN(4) == 0 {
				return errRefused
			}
			return nil
		}
	})
}

// calm ends what unruly began.
func (d *fakeDataplane) calm() {
	d.delay = func() time.Duration { return 0 }
	d.fail = func() error { return nil }
	d.refuse = func(plan.Key) error { return nil }
}

// observer knows what commits brought.
type observer map[plan.Key]*plan.Frontend

func (o observer) Committed(c *Commit) {
	for _, f := range c.Change.Set {
		if c.Result.Failed[f.Key] == nil {
			o[f.Key] = f
		}
	}
	for _, key := range c.Change.Removed {
		if c.Result.Failed[key] == nil {
			delete(o, key)
		}
	}
}

func (b *fixture) wantAgreement(t *testing.T, observed observer, final map[model.Name]model.SetService) {
	t.Helper()
	state := model.NewState()
	for service := range maps.Values(final) {
		state.Apply(&model.Dirty{}, service)
	}
	want := plan.New(plan.Config{NodeName: "here"}).Update(state, &model.Dirty{})
	frontends := map[plan.Key]*plan.Frontend{}
	for _, f := range want.Set {
		frontends[f.Key] = f
	}
	same := func(what string, got map[plan.Key]*plan.Frontend) {
		t.Helper()
		if diff := cmp.Diff(frontends, got, cmpopts.EquateComparable(plan.Key{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	b.Inspect(func(v View) {
		d := v.Desired
		same("desired", d.Frontends)
		if diff := cmp.Diff(d.ClusterIPs, b.kernel.clusterIPs, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("ClusterIPs in the kernel (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(d.Settings, b.kernel.settings, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("settings in the kernel (-want +got):\n%s", diff)
		}
	})
	same("the kernel", b.kernel.frontends)
	same("what observers saw", observed)
	for key := range frontends {
		if s, _ := b.Frontend(key); s.Phase != Programmed {
			t.Errorf("%s has status %+v", key, s)
		}
	}
	s := b.Status()
	if s.Failed != 0 || s.Pending != 0 || s.Frontends != len(frontends) || !s.PendingSince.IsZero() ||
		!s.FailingSince.IsZero() || s.ProgrammedRevision != s.DesiredRevision {
		t.Errorf("status at the end: %+v", s)
	}
	if s.FailedCommits == 0 || s.Commits < 20 {
		t.Errorf("too little happened for this test to mean anything: %+v", s)
	}
}
