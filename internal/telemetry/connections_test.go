package telemetry

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// at is the sample of a family at a time of the morning.
func at(family string, d time.Duration) string {
	return fmt.Sprintf("%s %v", family, seconds(morning.Add(d)))
}

// counting is a world whose connections are counted.
func counting(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	o := ConnectionsOptions{Counters: w.readCounters, Snapshot: w.snapshot, Clock: w.clock}
	if err := RegisterConnections(w.registry, o); err != nil {
		t.Fatal(err)
	}
	return w
}

// has makes a frontend desired, with a counter in the kernel.
func (w *world) has(f *plan.Frontend, count uint64) {
	w.desired.Frontends[f.Key], w.counters[f.Key] = f, count
}

func (w *world) lose(addr string) {
	delete(w.desired.Frontends, keyOf(addr))
	delete(w.counters, keyOf(addr))
}

// later is when the kernel is asked again.
func (w *world) later() { w.clock.Step(countersAge) }

func TestConnectionsOfAServicePortAreThoseOfAllItsAddresses(t *testing.T) {
	w := counting(t)
	w.want(connectionsName)
	w.later()
	w.has(frontend("10.96.0.1", web), 3)
	w.has(frontend("fd00::1", web), 4)
	w.has(frontend("10.96.0.2", mail), 5)
	w.counters[keyOf("10.96.0.9")] = 9 // in the kernel still, and nobody's by now
	w.want(connectionsName, "default http TCP web 7", "post http TCP mail 5")
}

func TestConnectionsNeverGoBackWhileTheServiceIsThere(t *testing.T) {
	w := counting(t)
	w.has(frontend("10.96.0.1", web), 100)
	w.has(frontend("192.0.2.1", web), 10)
	w.want(connectionsName, "default http TCP web 110")
	w.lose("192.0.2.1")
	w.counters[keyOf("10.96.0.1")] = 101
	w.later()
	w.want(connectionsName, "default http TCP web 111")
	w.counters[keyOf("10.96.0.1")] = 2 // written anew
	w.later()
	w.want(connectionsName, "default http TCP web 113")
	w.has(frontend("192.0.2.1", web), 1) // a new one at the old address
	w.later()
	w.want(connectionsName, "default http TCP web 114")
}

func TestAFrontendThatChangesHandsCountsForItsOwner(t *testing.T) {
	w := counting(t)
	w.has(frontend("192.0.2.1", web), 5)
	w.has(frontend("10.96.0.1", web), 1)
	w.want(connectionsName, "default http TCP web 6")
	w.has(frontend("192.0.2.1", mail), 7)
	w.later()
	w.want(connectionsName, "default http TCP web 6", "post http TCP mail 2")
}

func TestASeriesEndsWithItsService(t *testing.T) {
	w := counting(t)
	w.has(frontend("10.96.0.1", web), 5)
	w.want(connectionsName, "default http TCP web 5")
	w.lose("10.96.0.1")
	w.later()
	w.want(connectionsName)
	w.has(frontend("10.96.0.1", web), 1)
	w.later()
	w.want(connectionsName, "default http TCP web 1")
}

func TestScrapesInOneSecondAskTheKernelOnce(t *testing.T) {
	w := counting(t)
	w.has(frontend("10.96.0.1", web), 5)
	for range 3 {
		w.clock.Step(countersAge / 4)
		w.want(connectionsName, "default http TCP web 5")
	}
	if w.reads != 1 {
		t.Errorf("the kernel was asked %d times", w.reads)
	}
	w.later()
	w.want(connectionsName, "default http TCP web 5")
	if w.reads != 2 {
		t.Errorf("the kernel was asked %d times, a second later", w.reads)
	}
}

func TestAKernelThatDoesNotAnswerIsReportedOnceAndLeavesWhatIsKnown(t *testing.T) {
	w, logged := newWorld(t), 0
	err := RegisterConnections(w.registry, ConnectionsOptions{
		Counters: w.readCounters, Snapshot: w.snapshot, Clock: w.clock,
		Logger: funcr.New(func(_, line string) {
			if strings.Contains(line, "Cannot read") {
				logged++
			}
		}, funcr.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.has(frontend("10.96.0.1", web), 5)
	w.want(connectionsName, "default http TCP web 5")
	w.readErr = errors.New("dump interrupted")
	for range 3 {
		w.later()
		w.want(connectionsName, "default http TCP web 5")
	}
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
	w.readErr, w.counters[keyOf("10.96.0.1")] = nil, 8
	w.later()
	w.want(connectionsName, "default http TCP web 8")
}

// busy is a world with so many Services, of two frontends each.
func busy(t *testing.T, services int) *world {
	t.Helper()
	w := counting(t)
	change := &plan.Change{}
	for i := range services {
		name := model.Name{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
		for _, prefix := range []string{"10.%d.%d.%d", "172.%d.%d.%d"} {
			f := frontend(fmt.Sprintf(prefix, i>>16, i>>8&255, i&255), name)
			w.has(f, uint64(i))
			change.Set = append(change.Set, f)
		}
	}
	w.reconcile(time.Second, change)
	return w
}

// scrape reads all metrics, and changes every counter for the next time.
func (w *world) scrape() {
	w.feed.Refresh()
	if _, err := w.registry.Gather(); err != nil {
		w.t.Error(err)
	}
	for key := range w.counters {
		w.counters[key]++
	}
	w.later()
}

func TestScrapesKeepNoMemory(t *testing.T) {
	w := busy(t, 2000)
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w.scrape()
	before := used()
	for range 50 {
		w.scrape()
	}
	// One scrape of these makes more garbage than this.
	if after := used(); after > before+200<<10 {
		t.Errorf("50 scrapes keep %d bytes", after-before)
	}
	runtime.KeepAlive(w)
}

func BenchmarkScrape(b *testing.B) {
	for _, services := range []int{1000, 10_000, 20_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			var t testing.T
			w := busy(&t, services)
			b.ReportAllocs()
			for b.Loop() {
				w.scrape()
			}
		})
	}
}

func BenchmarkOnCommit(b *testing.B) {
	var t testing.T
	w := busy(&t, 10_000)
	change := set(frontend("10.0.0.1", web, internalGap))
	b.ReportAllocs()
	for b.Loop() {
		w.commit(time.Millisecond, change, dataplane.Result{Elements: 3})
	}
}
