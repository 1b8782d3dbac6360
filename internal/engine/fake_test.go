package engine

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// call is one write to the fake kernel, as tests compare it.
type call struct {
	Verb string        // "apply", "reconcile" or "repair"
	At   time.Duration // since the start
	What string        // frontends, those removed with a minus
}

// fakeDataplane is a kernel whose behaviour a test controls.
type fakeDataplane struct {
	t         *testing.T
	start     time.Time
	disturbed chan struct{}
	portion   int // it is best given at a time

	mu         sync.Mutex
	busy       bool // a commit is under way
	unknown    bool // only a reconcile may follow
	frontends  map[plan.Key]*plan.Frontend
	written    map[plan.Key]*plan.Frontend // what it would hold but for others
	clusterIPs map[netip.Addr]struct{}
	settings   plan.Settings
	calls      []call

	// What is to happen.
	hold   chan struct{} // commits wait for it to be closed
	delay  func() time.Duration
	fail   func() error
	refuse func(plan.Key) error
	verify func(context.Context) (bool, error)
	// leave has Apply leave frontends for later; nil for none.
	leave func(plan.Key) bool
	// cannotRepair leaves repairs to reconcile.
	cannotRepair bool
	// unread has reconciles leave a part unread.
	unread bool
}

func newFakeDataplane(t *testing.T) *fakeDataplane {
	return &fakeDataplane{
		t:          t,
		start:      time.Now(),
		disturbed:  make(chan struct{}, 1),
		portion:    portion,
		unknown:    true,
		frontends:  map[plan.Key]*plan.Frontend{},
		written:    map[plan.Key]*plan.Frontend{},
		clusterIPs: map[netip.Addr]struct{}{},
		delay:      func() time.Duration { return 0 },
		fail:       func() error { return nil },
		refuse:     func(plan.Key) error { return nil },
		verify:     func(context.Context) (bool, error) { return true, nil },
	}
}

func (d *fakeDataplane) Portion() int { return d.portion }

func (d *fakeDataplane) Reconcile(ctx context.Context, desired *plan.Desired) dataplane.Result {
	keys := slices.SortedFunc(maps.Keys(desired.Frontends), plan.Key.Compare)
	d.begin(ctx, "reconcile", keys, nil)
	defer d.end()
	result := d.set(slices.Collect(maps.Values(desired.Frontends)))
	for key := range d.frontends {
		if _, ok := desired.Frontends[key]; !ok {
			d.remove(key, &result)
		}
	}
	maps.DeleteFunc(d.written, func(key plan.Key, _ *plan.Frontend) bool { return d.frontends[key] == nil })
	d.settings = desired.Settings
	d.clusterIPs = maps.Clone(desired.ClusterIPs)
	result.Unread = d.unread
	return d.conclude(ctx, result)
}

// Repair restores what was removed by others.
func (d *fakeDataplane) Repair(ctx context.Context) dataplane.Result {
	if d.cannotRepair {
		return dataplane.Result{Err: errBroken}
	}
	d.begin(ctx, "repair", nil, nil)
	defer d.end()
	var lost []*plan.Frontend
	for key, f := range d.written {
		if d.frontends[key] == nil {
			lost = append(lost, f)
		}
	}
	if len(lost) == 0 {
		return dataplane.Result{}
	}
	return d.conclude(ctx, d.set(lost))
}

func (d *fakeDataplane) Apply(ctx context.Context, change *plan.Change) dataplane.Result {
	var keys []plan.Key
	for _, f := range change.Set {
		keys = append(keys, f.Key)
	}
	d.begin(ctx, "apply", keys, change.Removed)
	defer d.end()
	var left map[plan.Key]struct{}
	leaves := func(key plan.Key) bool {
		if d.leave == nil || !d.leave(key) {
			return false
		}
		if left == nil {
			left = map[plan.Key]struct{}{}
		}
		left[key] = struct{}{}
		return true
	}
	result := d.set(slices.DeleteFunc(slices.Clone(change.Set), func(f *plan.Frontend) bool { return leaves(f.Key) }))
	for _, key := range change.Removed {
		if !leaves(key) {
			d.remove(key, &result)
		}
	}
	result.Left = left
	if change.Settings != nil {
		d.settings = *change.Settings
	}
	for _, addr := range change.ClusterIPsAdded {
		d.clusterIPs[addr] = struct{}{}
	}
	for _, addr := range change.ClusterIPsRemoved {
		delete(d.clusterIPs, addr)
	}
	return d.conclude(ctx, result)
}

// begin records a call, checks that it is one the interface allows, waits
// while the test wants it to, and returns with the lock held.
func (d *fakeDataplane) begin(ctx context.Context, verb string, set, removed []plan.Key) {
	what := make([]string, 0, len(set)+len(removed))
	for _, key := range set {
		what = append(what, key.Addr.String())
	}
	for _, key := range removed {
		what = append(what, "-"+key.Addr.String())
		if slices.Contains(set, key) {
			d.t.Errorf("%s both sets and removes %s", verb, key)
		}
	}
	d.mu.Lock()
	if d.busy {
		d.t.Errorf("%s while another commit is under way", verb)
	}
	if d.unknown && verb != "reconcile" {
		d.t.Errorf("%s while only reconcile is allowed", verb)
	}
	d.busy = true
	d.calls = append(d.calls, call{verb, time.Since(d.start), strings.Join(what, " ")})
	hold, delay := d.hold, d.delay()
	d.mu.Unlock()
	time.Sleep(delay)
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
}

func (d *fakeDataplane) end() {
	d.busy = false
	d.mu.Unlock()
}

func (d *fakeDataplane) set(frontends []*plan.Frontend) dataplane.Result {
	result := dataplane.Result{Transactions: 1, Failed: map[plan.Key]error{}}
	for _, f := range frontends {
		if err := d.refuse(f.Key); err != nil {
			result.Failed[f.Key] = err
			continue
		}
		d.frontends[f.Key], d.written[f.Key] = f, f
		result.Elements++
	}
	return result
}

func (d *fakeDataplane) remove(key plan.Key, result *dataplane.Result) {
	if _, ok := d.frontends[key]; !ok {
		delete(d.written, key)
		return
	}
	if err := d.refuse(key); err != nil {
		result.Failed[key] = err
		return
	}
	delete(d.frontends, key)
	delete(d.written, key)
	result.Elements++
}

// conclude turns the result into a failure if the test asks for one, and then
// leaves the kernel in an unknown state.
func (d *fakeDataplane) conclude(ctx context.Context, result dataplane.Result) dataplane.Result {
	err := d.fail()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	d.unknown = err != nil
	if err == nil {
		return result
	}
	lose := false
	for key := range d.frontends {
		if lose {
			delete(d.frontends, key)
		}
		lose = !lose
	}
	return dataplane.Result{Err: err}
}

func (d *fakeDataplane) Verify(ctx context.Context) (bool, error) {
	d.mu.Lock()
	verify := d.verify
	d.mu.Unlock()
	return verify(ctx)
}

func (d *fakeDataplane) Disturbed() <-chan struct{} { return d.disturbed }
func (d *fakeDataplane) Close() error {
	d.t.Error("the engine closed the dataplane")
	return nil
}

// configure changes the behaviour of the fake.
func (d *fakeDataplane) configure(change func(*fakeDataplane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// taken are the calls since it was last asked.
func (d *fakeDataplane) taken() []call {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// content are the addresses of the frontends in the fake kernel.
func (d *fakeDataplane) content() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for key := range d.frontends {
		out = append(out, key.Addr.String())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// failWith makes whole commits fail, or work again for nil.
func (d *fakeDataplane) failWith(err error) {
	d.configure(func(d *fakeDataplane) { d.fail = func() error { return err } })
}

// refuseAddr makes the frontends of one address fail, or work again for nil.
func (d *fakeDataplane) refuseAddr(addr string, err error) {
	d.configure(func(d *fakeDataplane) {
		d.refuse = func(key plan.Key) error {
			if key.Addr == netip.MustParseAddr(addr) {
				return err
			}
			return nil
		}
	})
}

// holdCommits makes commits wait until release is called.
func (d *fakeDataplane) holdCommits() (release func()) {
	hold := make(chan struct{})
	d.configure(func(d *fakeDataplane) { d.hold = hold })
	return func() {
		d.configure(func(d *fakeDataplane) { d.hold = nil })
		close(hold)
	}
}

// fixture is an engine under test. Time in it is virtual: it passes only when
// all goroutines wait.
type fixture struct {
	*Engine
	kernel *fakeDataplane
	stop   func()

	mu   sync.Mutex
	logs []string
}

// run tests an engine in a world of its own. Services are one address with
// port 80 each; the first ones are there when the test starts.
func run(t *testing.T, o Options, test func(*testing.T, *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &fixture{kernel: newFakeDataplane(t)}
		o.Planner = plan.New(plan.Config{NodeName: "here"})
		o.Dataplane = b.kernel
		o.Logger = funcr.New(func(_, line string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.logs = append(b.logs, line)
		}, funcr.Options{Verbosity: 1})
		b.Engine = New(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		b.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run ended with %v", err)
			}
		})
		go func() { ended <- b.Run(ctx) }()
		defer b.stop()
		test(t, b)
	})
}

// observe has a function called after each commit. It comes before sync.
func (b *fixture) observe(committed func(*Commit)) { b.Observe(ObserverFunc(committed)) }

// sync says that the sources are in sync and waits for the first commit.
func (b *fixture) sync() {
	b.Synced()
	synctest.Wait()
	b.kernel.taken()
	b.logged("")
}

// logged are the lines that contain text since it was last asked.
func (b *fixture) logged(text string) (lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.logs {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	b.logs = nil
	return lines
}

// web is a Service with one frontend, named after its address. Each version
// of it is another frontend.
func web(addr string, version uint32) model.SetService {
	return model.SetService{Service: &model.Service{
		Name:       webName(addr),
		ClusterIPs: []netip.Addr{netip.MustParseAddr(addr)},
		Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		Affinity:   version,
	}}
}

func noWeb(addr string) model.DeleteService { return model.DeleteService{Name: webName(addr)} }

func webName(addr string) model.Name { return model.Name{Namespace: "default", Name: addr} }

func webKey(addr string) plan.Key {
	return plan.Key{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: model.TCP}
}
