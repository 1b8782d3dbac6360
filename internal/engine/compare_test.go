package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a reconcile left unread is verified at once, also if there are no periodic verifications. Changes do not wait
// for it, and observers learn when it is right: after a repair, if it was not.
func TestWhatIsUnreadIsCompared(t *testing.T) {
	type told struct {
		At        time.Duration
		Kind      Kind
		Comparing bool
	}
	for _, test := range []struct {
		name    string
		answers []error // of verifications, each after a second; nil for the last
		good    bool
		want    []told
	}{
		{"right", []error{nil}, true, []told{
			{0, Reconcile, true}, {500 * ms, Apply, true}, {time.Second, None, false}, {time.Minute, Apply, false}}},
		{"wrong", []error{nil}, false, []told{
			{0, Reconcile, true}, {500 * ms, Apply, true}, {time.Second, Repair, true}, {time.Second, None, false}, {time.Minute, Apply, false}}},
		{"cannot be read at first", []error{errors.New("dump interrupted"), nil}, true, []told{
			{0, Reconcile, true}, {500 * ms, Apply, true}, {3 * time.Second, None, false}, {time.Minute, Apply, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, Options{}, func(t *testing.T, b *fixture) {
				var got []told
				start := time.Now()
				b.observe(func(c *Commit) { got = append(got, told{c.End.Sub(start), c.Kind, c.Comparing}) })
				b.kernel.configure(func(d *fakeDataplane) {
					d.unread = true
					d.verify = func(context.Context) (bool, error) {
						time.Sleep(time.Second)
						err := test.answers[0]
						if test.answers = test.answers[1:]; err == nil && !test.good {
							d.configure(func(d *fakeDataplane) { delete(d.frontends, webKey("10.0.0.1")) })
						}
						return test.good, err
					}
				})
				b.Update(web("10.0.0.1", 0))
				b.sync()
				time.Sleep(500 * ms)
				b.Update(web("10.0.0.2", 0))
				time.Sleep(time.Minute - 500*ms)
				b.Update(web("10.0.0.3", 0))
				synctest.Wait()
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("observers were told (-want +got):\n%s", diff)
				}
				if n := b.kernel.content(); n != "10.0.0.1 10.0.0.2 10.0.0.3" {
					t.Errorf("the kernel holds %s", n)
				}
			})
		})
	}
}
