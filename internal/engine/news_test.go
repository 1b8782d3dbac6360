package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestACommitTellsTheNewsInItOnce(t *testing.T) {
	var told []model.News
	run(t, Options{}, func(t *testing.T, b *bench) {
		b.observe(func(c *Commit) { told = append(told, c.Change.News) })
		trigger := time.Now()
		b.Update(web("10.0.0.1", 0), web("10.0.0.2", 0))
		b.sync()
		b.kernel.failWith(errBroken)
		b.Update(web("10.0.0.1", 1))
		synctest.Wait()
		b.Update(model.SetSlice{Slice: &model.Slice{Name: webName("s"), Service: "10.0.0.2", Family: model.IPv4, Trigger: trigger}})
		b.kernel.failWith(nil)
		time.Sleep(time.Minute)
		b.SetPlanConfig(plan.Config{NodeName: "there"})
		b.Update(noWeb("10.0.0.1"))
		synctest.Wait()

		var sum model.News
		for _, news := range told {
			sum.Add(news)
		}
		for i, news := range told {
			if news.Since.IsZero() {
				t.Errorf("commit %d does not tell when its events came", i)
			}
		}
		if told[0].Services != 2 {
			t.Errorf("the first commit told of %d Services, want 2", told[0].Services)
		}
		if sum.Services != 4 || sum.Slices != 1 || len(sum.Triggers) != 1 || !sum.Triggers[0].At.Equal(trigger) {
			t.Errorf("all commits told of %+v, want each event once", sum)
		}
	})
}

func TestTheSummarySaysWhenTheKernelWasLastFoundRight(t *testing.T) {
	run(t, Options{SyncPeriod: time.Minute}, func(t *testing.T, b *bench) {
		b.sync()
		if s := b.Status(); !s.LastVerified.IsZero() {
			t.Errorf("verified at %s before the first look", s.LastVerified)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		found := time.Now()
		if s := b.Status(); !s.LastVerified.Equal(found) {
			t.Errorf("verified at %s, want %s", s.LastVerified, found)
		}
		b.kernel.tell(func(d *fakeDataplane) {
			d.verify = func(context.Context) (bool, error) { return false, errors.New("dump interrupted") }
		})
		time.Sleep(time.Hour)
		if s := b.Status(); !s.LastVerified.Equal(found) {
			t.Errorf("verified at %s by a look that failed", s.LastVerified)
		}
	})
}
