package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/plan"
)

func TestDisturbanceIsRepaired(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) { clear(d.frontends) })
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"repair", 0, ""})
		wantContent(t, b, "10.0.0.1")
		wantLogged(t, b, `"msg"="Repaired"`, 1)
	})
}

func TestHarmlessDisturbanceIsNoRepair(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		before := b.Status()
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"repair", 0, ""})
		wantLogged(t, b, `"msg"="Repaired"`, 0)
		if after := b.Status(); after.Commits != before.Commits || after.Reconciles != before.Reconciles {
			t.Errorf("%d commits and %d repairs, want %d and %d", after.Commits, after.Reconciles, before.Commits, before.Reconciles)
		}
	})
}

func TestFailedRepairIsReconciled(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) { clear(d.frontends); d.cannotRepair = true })
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"reconcile", 0, "10.0.0.1"})
		wantContent(t, b, "10.0.0.1")
	})
}

func TestReconcilesInALoopAreLimited(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) {
			d.cannotRepair = true
			d.delay = func() time.Duration { return 20 * ms }
		})
		for range 10 {
			b.kernel.disturbed <- struct{}{}
			time.Sleep(100 * ms)
		}
		if n := len(b.kernel.taken()); n < 4 || n > 6 {
			t.Errorf("%d reconciles in a second, want one each 220 ms", n)
		}
	})
}

func TestRepairLeavesPendingAlone(t *testing.T) {
	run(t, Options{MinSyncPeriod: time.Second}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.Update(web("10.0.0.2", 0))
		b.kernel.configure(func(d *fakeDataplane) { clear(d.frontends) })
		b.kernel.disturbed <- struct{}{}
		time.Sleep(1500 * ms)
		wantCalls(t, b, call{"repair", time.Second, ""})
		if s, _ := b.Frontend(webKey("10.0.0.2")); s.Phase != Pending {
			t.Errorf("status is %+v", s)
		}
		time.Sleep(time.Second)
		wantCalls(t, b, call{"apply", 2 * time.Second, "10.0.0.2"})
		wantContent(t, b, "10.0.0.1 10.0.0.2")
	})
}

func TestRepairsInALoopAreLimited(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) { d.delay = func() time.Duration { return 20 * ms } })
		for range 10 {
			b.kernel.disturbed <- struct{}{}
			time.Sleep(100 * ms)
		}
		wantCalls(t, b, call{"repair", 0, ""}, call{"repair", 220 * ms, ""}, call{"repair", 440 * ms, ""},
			call{"repair", 660 * ms, ""}, call{"repair", 880 * ms, ""})
		const news = `"level"=0 "msg"="Another process changed our rules`
		wantLogged(t, b, news, 1)

		time.Sleep(time.Hour)
		wantCalls(t, b, call{"repair", 1100 * ms, ""})
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"repair", time.Hour + time.Second, ""})
		wantLogged(t, b, news, 1)
	})
}

func TestDisturbanceDuringCommits(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		release := b.kernel.holdCommits()
		b.Update(web("10.0.0.1", 0))
		synctest.Wait()
		b.Update(web("10.0.0.2", 0))
		b.kernel.disturbed <- struct{}{}
		synctest.Wait()
		release()
		wantCalls(t, b, call{"apply", 0, "10.0.0.1"}, call{"repair", 0, ""}, call{"apply", 0, "10.0.0.2"})
	})
}

func TestDisturbanceEndsBackoff(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.failWith(errBroken)
		b.sync()
		time.Sleep(time.Minute) // now it is tried every 30 s
		b.kernel.taken()
		b.kernel.failWith(nil)
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"reconcile", time.Minute, ""})
	})
}

func TestFailingRepairsInALoopAreLimited(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.kernel.failWith(errBroken)
		b.sync()
		time.Sleep(time.Minute)
		b.kernel.taken()
		b.kernel.configure(func(d *fakeDataplane) { d.delay = func() time.Duration { return 100 * ms } })
		for range 20 {
			b.kernel.disturbed <- struct{}{}
			time.Sleep(100 * ms)
		}
		if n := len(b.kernel.taken()); n < 3 || n > 5 {
			t.Errorf("%d reconciles in two seconds, want one each 600 ms", n)
		}
	})
}

func TestClosedDisturbedChannel(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		close(b.kernel.disturbed)
		time.Sleep(time.Minute)
		b.Update(web("10.0.0.1", 0))
		wantCalls(t, b, call{"apply", time.Minute, "10.0.0.1"})
	})
}

func TestVerifyLeadsToRepair(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		time.Sleep(10 * time.Minute)
		wantCalls(t, b) // all was well
		b.kernel.configure(func(d *fakeDataplane) {
			clear(d.frontends)
			d.verify = func(context.Context) (bool, error) { return b.kernel.content() != "", nil }
		})
		time.Sleep(10 * time.Minute)
		wantCalls(t, b, call{"repair", 11 * time.Minute, ""})
		wantLogged(t, b, "The kernel differs", 1)
	})
}

func TestVerifyDelaysNoChange(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		running, most := 0, 0
		finish := make(chan bool)
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) {
				running++
				most = max(most, running)
				ok := <-finish
				running--
				return ok, nil
			}
		})
		time.Sleep(10 * time.Minute)
		b.Update(web("10.0.0.1", 0))
		wantCalls(t, b, call{"apply", 10 * time.Minute, "10.0.0.1"})
		finish <- false
		wantCalls(t, b, call{"repair", 10 * time.Minute, ""})
		if most != 1 {
			t.Errorf("%d verifications at a time, want 1", most)
		}
		close(finish)
	})
}

func TestOvertakenVerifyIsIgnored(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		finish := make(chan struct{})
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { <-finish; return false, nil }
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.kernel.configure(func(d *fakeDataplane) { d.cannotRepair = true })
		b.kernel.disturbed <- struct{}{}
		wantCalls(t, b, call{"reconcile", time.Minute, ""})
		finish <- struct{}{}
		wantCalls(t, b)
		close(finish)
	})
}

func TestVerifyErrorIsLoggedOnce(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		tries := 0
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { tries++; return false, errors.New("dump interrupted") }
		})
		time.Sleep(5 * time.Minute)
		wantCalls(t, b)
		if tries != 5 {
			t.Errorf("%d tries in five periods", tries)
		}
		wantLogged(t, b, `"msg"="Cannot verify what is in the kernel"`, 1)
	})
}

// On Windows no kernel is programmed.
func TestLogNamesTheSystem(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute, System: "HNS"}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { return false, errors.New("access denied") }
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLogged(t, b, `"msg"="Cannot verify what is in HNS"`, 1)
		b.kernel.configure(func(d *fakeDataplane) { d.verify = func(context.Context) (bool, error) { return false, nil } })
		time.Sleep(time.Minute)
		synctest.Wait()
		wantCalls(t, b, call{"repair", 2 * time.Minute, ""})
		wantLogged(t, b, `"msg"="HNS differs from what was programmed, repairing it"`, 1)
	})
}

func TestNoVerifyWithoutSyncPeriod(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { t.Error("verified"); return true, nil }
		})
		time.Sleep(24 * time.Hour)
	})
}

func TestVerifyWithRefusedFrontend(t *testing.T) {
	run(t, Options{SyncPeriod: time.Second}, func(t *testing.T, b *fixture) {
		b.sync()
		b.kernel.refuseAddr("10.0.0.1", errRefused)
		b.Update(web("10.0.0.1", 0))
		time.Sleep(time.Hour) // now it is tried every 30 s
		tries := 0
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { tries++; return true, nil }
		})
		time.Sleep(10*time.Second + 500*ms)
		synctest.Wait()
		if tries != 10 && tries != 11 {
			t.Errorf("verified %d times in 10.5 s, want every second", tries)
		}
	})
}

func TestRunEndsAfterVerify(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *fixture) {
		b.sync()
		ended := false
		b.kernel.configure(func(d *fakeDataplane) {
			d.verify = func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				ended = true
				return false, ctx.Err()
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.stop()
		if !ended {
			t.Error("Run left a Verify behind")
		}
	})
}

func TestFrontendRefusedByRepairFails(t *testing.T) {
	run(t, Options{}, func(t *testing.T, b *fixture) {
		b.Update(web("10.0.0.1", 0))
		b.sync()
		b.kernel.configure(func(d *fakeDataplane) {
			clear(d.frontends)
			d.refuse = func(plan.Key) error { return errRefused }
		})
		b.kernel.disturbed <- struct{}{}
		synctest.Wait()
		if s, _ := b.Frontend(webKey("10.0.0.1")); s.Phase != Failed || !errors.Is(s.Err, errRefused) {
			t.Errorf("status is %+v", s)
		}
	})
}
