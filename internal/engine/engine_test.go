package engine

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/plan"
)

var (
	_ model.Sink = (*Engine)(nil)
	_ Planner    = (*plan.Planner)(nil)
)

func wantCalls(t *testing.T, b *fixture, want ...call) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, b.kernel.taken()); diff != "" {
		t.Errorf("writes to the kernel (-want +got):\n%s", diff)
	}
}

func wantContent(t *testing.T, b *fixture, want string) {
	t.Helper()
	synctest.Wait()
	if got := b.kernel.content(); got != want {
		t.Errorf("the kernel has %q, want %q", got, want)
	}
}

func wantLogged(t *testing.T, b *fixture, text string, want int) {
	t.Helper()
	if got := b.logged(text); len(got) != want {
		t.Errorf("%d lines with %q, want %d:\n%s", len(got), text, want, strings.Join(got, "\n"))
	}
}

func TestNoWriteBeforeSourcesAreSynced(t *testing.T) {
	run(t, Options{SyncPeriod: time.Second}, func(t *testing.T, b *fixture) {
		cluster, host := b.AddSource("cluster"), b.AddSource("host")
		cluster.Update(web("10.0.0.1", 0))
		cluster.Synced()
		cluster.Synced() // saying it twice does not stand in for the other
		host.Update(model.SetHostIPs{})
		b.SetPlanConfig(plan.Config{})
		b.kernel.disturbed <- struct{}{}
		time.Sleep(time.Hour)
		wantCalls(t, b)
		want := Summary{WaitingFor: []string{"host"}, SyncPeriod: time.Second}
		if diff := cmp.Diff(want, b.Status()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}

		host.Synced()
		wantCalls(t, b, call{"reconcile", time.Hour, "10.0.0.1"})
		if s := b.Status(); !s.Synced || len(s.WaitingFor) > 0 {
			t.Errorf("not in sync: %+v", s)
		}
	})
}

func TestFirstCommitIsReconcile(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.configure(func(d *fakeDataplane) {
			d.frontends[webKey("10.0.0.9")] = &plan.Frontend{Key: webKey("10.0.0.9")}
		})
		b.Update(web("10.0.0.1", 0))
		b.Synced()
		wantContent(t, b, "10.0.0.1")
	})
}

func TestEmptyClusterIsReconciled(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Synced()
		wantCalls(t, b, call{"reconcile", 0, ""})
		wantLogged(t, b, `"msg"="Programmed"`, 1)
	})
}

func TestChangesAreNotDelayed(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.Update(web("10.0.0.2", 0), web("10.0.0.3", 0))
		wantCalls(t, b, call{"apply", 0, "10.0.0.2 10.0.0.3"})
		b.Update(noWeb("10.0.0.1"), web("10.0.0.2", 1))
		wantCalls(t, b, call{"apply", 0, "10.0.0.2 -10.0.0.1"})
		wantContent(t, b, "10.0.0.2 10.0.0.3")
	})
}

func TestEventsDuringCommitAreBatched(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		b.Update(web("10.0.0.2", 0))
		b.Update(web("10.0.0.3", 0))
		b.Update(noWeb("10.0.0.2"))
		time.Sleep(time.Second)
		wantCalls(t, b, call{"apply", 0, "10.0.0.1"})
		release()
		wantCalls(t, b, call{"apply", time.Second, "10.0.0.3"})
		wantLogged(t, b, `"msg"="Programmed"`, 2)
	})
}

func TestMinSyncPeriod(t *testing.T) {
	run(t, Options{MinSyncPeriod: 10 * time.Second}, func(t *testing.T, b *fixture) {
		b.sync()
		time.Sleep(time.Minute)
		b.Update(web("10.0.0.1", 0))
		wantCalls(t, b, call{"apply", time.Minute, "10.0.0.1"})

		time.Sleep(time.Second)
		b.Update(web("10.0.0.2", 0))
		time.Sleep(time.Second)
		b.Update(web("10.0.0.1", 1), noWeb("10.0.0.2"), web("10.0.0.3", 0))
		wantCalls(t, b)
		time.Sleep(8 * time.Second)
		wantCalls(t, b, call{"apply", time.Minute + 10*time.Second, "10.0.0.1 10.0.0.3 -10.0.0.2"})
	})
}

func TestMinSyncPeriodOfRepairsAndRetries(t *testing.T) {
	run(t, Options{MinSyncPeriod: 10 * time.Second}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.disturbed <- struct{}{}
		time.Sleep(10 * time.Second)
		wantCalls(t, b, call{"repair", 10 * time.Second, ""})
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0))
		time.Sleep(20 * time.Second)
		wantCalls(t, b, call{"apply", 20 * time.Second, "10.0.0.1"}, call{"apply", 30 * time.Second, "10.0.0.1"})
	})
}

func TestEmptyChangeIsObserved(t *testing.T) {
	var commits []*Commit
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) { commits = append(commits, c) })
		b.sync()
		commits = nil
		b.Update(noWeb("10.0.0.7"))
		b.Update()
		wantCalls(t, b)
		lines := b.logged(`"msg"="Programmed"`)
		want := `"level"=0 "msg"="Programmed" "revision"=0 "set"=0 "removed"=0 "transactions"=0 "elements"=0 "failed"=0 "duration"="0s"`
		if diff := cmp.Diff([]string{want}, lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if len(commits) != 1 || !commits[0].Change.Empty() {
			t.Errorf("observer got %+v, want one empty change", commits)
		}
	})
}

func TestEmptyChangeWaitsForEarlierOnes(t *testing.T) {
	tests := []struct {
		name  string
		ahead func(*fixture)
	}{
		{"a change that waits for the MinSyncPeriod", func(b *fixture) { b.Update(web("10.0.0.1", 0)) }},
		{"a reconcile that waits after a failure", func(b *fixture) {
			b.kernel.failWith(errBroken)
			b.Update(web("10.0.0.1", 0))
			time.Sleep(time.Minute + ms) // the commit was a moment ago
			b.kernel.failWith(nil)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, Options{MinSyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
				b.sync()
				tt.ahead(b)
				synctest.Wait()
				b.Update(noWeb("10.0.0.7"))
				time.Sleep(time.Second)
				wantLogged(t, b, "Programmed", 0)
				if s := b.Status(); s.PendingSince.IsZero() {
					t.Errorf("nothing is pending: %+v", s)
				}
				time.Sleep(time.Minute)
				wantLogged(t, b, "Programmed", 1)
			})
		})
	}
}

func TestEachCommitIsLogged(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.2", 0), web("10.0.0.3", 0), noWeb("10.0.0.1"))
		time.Sleep(30 * time.Millisecond)
		wantLogged(t, b, "Programmed", 0)
		release()
		synctest.Wait()
		want := `"level"=0 "msg"="Programmed" "revision"=4 "set"=2 "removed"=1 "transactions"=1 "elements"=3 "failed"=0 "duration"="30ms"`
		if diff := cmp.Diff([]string{want}, b.logged("")); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestObserversSeeEveryChange(t *testing.T) {
	var seen []string
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(c *Commit) {
			var what []string
			for _, f := range c.Change.Set {
				what = append(what, f.Key.Addr.String())
			}
			seen = append(seen, strings.Join(what, " ")+" in the kernel: "+b.kernel.content())
		})
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.Update(web("10.0.0.2", 0))
		synctest.Wait()
		want := []string{"10.0.0.1 in the kernel: 10.0.0.1", "10.0.0.2 in the kernel: 10.0.0.1 10.0.0.2"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("observer (-want +got):\n%s", diff)
		}
	})
}

func TestObserverMayCallEngine(t *testing.T) {
	var frontends int
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.observe(func(*Commit) {
			b.Inspect(func(v View) { frontends = len(v.Desired.Frontends) })
			b.Status()
			b.Failures()
		})
		b.Update(web("10.0.0.1", 0))
		b.sync()
		if frontends != 1 {
			t.Errorf("observer saw %d frontends, want 1", frontends)
		}
	})
}

func TestNothingWaitsForACommit(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()

		// Any of these would hang if the loop held its lock.
		b.Update(web("10.0.0.2", 0))
		b.SetPlanConfig(plan.Config{})
		b.Synced()
		b.Status()
		b.Failures()
		b.Inspect(func(v View) {
			if n := len(v.Desired.Frontends); n != 1 {
				t.Errorf("%d frontends desired, want 1", n)
			}
		})
		if s, _ := b.Frontend(webKey("10.0.0.1")); s.Phase != Pending {
			t.Errorf("the frontend under way is %+v", s)
		}
		release()
		wantContent(t, b, "10.0.0.1 10.0.0.2")
	})
}

func TestSetPlanConfig(t *testing.T) {
	external := web("10.0.0.1", 0)
	external.ExternalIPs = append(external.ExternalIPs, webKey("192.0.2.1").Addr)
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(external)
		b.sync()
		wantContent(t, b, "10.0.0.1 192.0.2.1")
		b.SetPlanConfig(plan.Config{NoExternalIPs: true})
		wantContent(t, b, "10.0.0.1")
		b.SetPlanConfig(plan.Config{NoExternalIPs: true})
		b.SetPlanConfig(plan.Config{}) // the last one counts
		b.Update(web("10.0.0.2", 0))
		wantContent(t, b, "10.0.0.1 10.0.0.2 192.0.2.1")
	})
}

func TestSetPlanConfigBeforeStart(t *testing.T) {
	external := web("10.0.0.1", 0)
	external.ExternalIPs = append(external.ExternalIPs, webKey("192.0.2.1").Addr)
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.SetPlanConfig(plan.Config{NoExternalIPs: true})
		synctest.Wait()
		b.Update(external)
		b.sync()
		wantContent(t, b, "10.0.0.1")
	})
}

func TestProblemsAreLoggedOnce(t *testing.T) {
	bad := web("10.0.0.1", 0)
	bad.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "10.0.0.1"}, Field: "spec.x", Reason: "is odd"}}
	const message = `"msg"="Problem with an object" "error"=null`
	const gone = `"level"=1 "msg"="Problem with an object is gone"`
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.Update(bad)
		synctest.Wait()
		if lines := b.logged(message); len(lines) != 1 || !strings.Contains(lines[0], `"object"="Service default/10.0.0.1"`) {
			t.Errorf("log: %q", lines)
		}
		other := web("10.0.0.2", 0)
		other.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "default", Name: "10.0.0.2"}, Reason: "is odd too"}}
		b.Update(other)
		synctest.Wait()
		wantLogged(t, b, message, 1)
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		wantLogged(t, b, gone, 1)
		b.Update(bad)
		synctest.Wait()
		wantLogged(t, b, message, 1)
	})
}

func TestStoppingLeavesKernelAlone(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.Update(web("10.0.0.2", 0))
		synctest.Wait()
		b.stop()
		b.Update(noWeb("10.0.0.1"))
		wantContent(t, b, "10.0.0.1 10.0.0.2")
	})
}

func TestInterruptedCommitIsNoFailure(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		b.stop()
		if s := b.Status(); s.LastError != nil {
			t.Errorf("status has error %v", s.LastError)
		}
		if lines := b.logged("failed"); slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "error") }) {
			t.Errorf("log: %q", lines)
		}
	})
}
