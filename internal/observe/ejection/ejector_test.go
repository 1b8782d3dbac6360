package ejection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// street is a witness whose endpoints serve two clients each 4 times a second, unless they are down.
type street struct {
	mu       sync.Mutex
	err      error // of every call
	tooMany  bool
	watched  map[dataplane.Target]dataplane.OnTrial
	watches  int
	down     map[dataplane.Target]time.Time // since when
	repeated map[dataplane.Target]uint64
	probes   int // under way
	most     int
	slow     time.Duration // after which an endpoint answers that is down; zero for never
	waited   time.Duration // by clients
}

func (s *street) Watch(_ context.Context, targets map[dataplane.Target]dataplane.OnTrial) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	if s.err == nil {
		s.watched = targets
	}
	if s.err == nil && s.tooMany {
		return dataplane.ErrTooManyWatched
	}
	return s.err
}

func (s *street) Failures(context.Context) (all []dataplane.Failure, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, since := range s.down {
		if time.Since(since) < s.waited {
			continue
		}
		s.repeated[at]++
		for _, client := range []string{"10.244.1.8", "10.244.1.9"} {
			all = append(all, dataplane.Failure{Target: at, Client: netip.MustParseAddr(client), Packets: s.repeated[at], At: time.Now(), Waited: s.waited})
		}
	}
	return all, s.err
}

func (s *street) Seen(_ context.Context, targets []dataplane.Target) (map[dataplane.Target]dataplane.Seen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[dataplane.Target]dataplane.Seen{}
	for _, at := range targets {
		one := dataplane.Seen{Answered: time.Now()}
		if since, down := s.down[at]; down {
			one.Answered = since
		}
		if s.watched[at] {
			one.Tried = time.Now()
		}
		seen[at] = one
	}
	return seen, s.err
}

func (s *street) dial(ctx context.Context, _ dataplane.Target) Outcome {
	s.mu.Lock()
	s.probes++
	s.most = max(s.most, s.probes)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.probes--
	}()
	slow := s.slow
	if slow == 0 {
		slow = time.Hour
	}
	select {
	case <-time.After(slow):
		return Answered
	case <-ctx.Done():
		return Silent
	}
}

func (s *street) set(at dataplane.Target, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if down {
		s.down[at] = time.Now()
	} else {
		delete(s.down, at)
		delete(s.repeated, at)
	}
}

// updates is a Sink that keeps what it is told, and counts.
type updates struct {
	mu      sync.Mutex
	ejected map[model.Name][]model.Ejection
	at      []time.Time
}

func (u *updates) Update(events ...model.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = append(u.at, time.Now())
	for _, e := range events {
		set := e.(model.SetEjected)
		u.ejected[set.Service] = set.Endpoints
	}
}

func (u *updates) Synced() {}

func (u *updates) count(service model.Name) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.ejected[service])
}

var shop = model.Name{Namespace: "default", Name: "web"}

// inStreet runs an Ejector for a Service with that many endpoints.
func inStreet(t *testing.T, endpoints int, test func(*Ejector, *street, *updates, *plan.Frontend)) {
	synctest.Test(t, func(t *testing.T) {
		s := &street{waited: resend, down: map[dataplane.Target]time.Time{}, repeated: map[dataplane.Target]uint64{}}
		u := &updates{ejected: map[model.Name][]model.Ejection{}}
		f := &plan.Frontend{Key: plan.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}, Service: shop, Watched: true}
		for n := range endpoints {
			f.Route.Endpoints = append(f.Route.Endpoints, plan.Endpoint{AddrPort: endpoint(n).AddrPort})
		}
		e := New(Options{Logger: logr.Discard(), Witness: s, Sink: u, Dial: s.dial})
		e.Committed(&engine.Commit{Change: &plan.Change{Set: []*plan.Frontend{f}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Second)
		test(e, s, u, f)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s.err == nil && len(s.watched) > 0 {
			t.Errorf("%d endpoints are watched after the end", len(s.watched))
		}
	})
}

func endpoint(n int) dataplane.Target {
	return dataplane.Target{AddrPort: netip.MustParseAddrPort(fmt.Sprintf("10.244.%d.%d:8080", n/250, n%250+1)), Protocol: model.TCP}
}

// Of 1,000 endpoints a tenth comes and goes all the time: the engine is told at most ten times a second, and
// nothing grows.
func TestManyFlappingEndpoints(t *testing.T) {
	inStreet(t, 1000, func(e *Ejector, s *street, u *updates, _ *plan.Frontend) {
		flap := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				for n := range 100 {
					s.set(endpoint(n), n%3 != int(time.Now().Unix()/2)%3)
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		flap(time.Minute)
		before := heap()
		flap(3 * time.Minute)
		after := heap()
		if u.count(shop) == 0 {
			t.Error("none is ejected: the test shows less than it should")
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		for i := range u.at {
			if i >= 10 && u.at[i].Sub(u.at[i-10]) < time.Second {
				t.Fatalf("the engine is told more than ten times a second, at %v", u.at[i])
			}
		}
		t.Logf("told %d times in 4 minutes; heap %d and %d KiB; at most %d probes at a time", len(u.at), before>>10, after>>10, s.most)
		if after > before+before/2+1<<20 {
			t.Errorf("the heap grew from %d to %d", before, after)
		}
		if s.most > maxProbes {
			t.Errorf("%d probes at a time", s.most)
		}
	})
}

// A Service that is deleted and made again at once has the same endpoints left out, and one that is gone none.
func TestServiceMadeAgain(t *testing.T) {
	inStreet(t, 4, func(e *Ejector, s *street, u *updates, f *plan.Frontend) {
		s.set(endpoint(0), true)
		time.Sleep(3 * time.Second)
		if n := u.count(shop); n != 1 {
			t.Fatalf("%d are ejected", n)
		}
		e.Committed(&engine.Commit{Change: &plan.Change{Removed: []plan.Key{f.Key}, Before: map[plan.Key]*plan.Frontend{f.Key: f}}})
		e.Committed(&engine.Commit{Change: &plan.Change{Set: []*plan.Frontend{f}}})
		time.Sleep(time.Second)
		if n := u.count(shop); n != 1 {
			t.Errorf("%d are ejected then", n)
		}
		e.Committed(&engine.Commit{Change: &plan.Change{Removed: []plan.Key{f.Key}, Before: map[plan.Key]*plan.Frontend{f.Key: f}}})
		time.Sleep(time.Second)
		if n := u.count(shop); n != 0 {
			t.Errorf("%d are ejected of a Service that is gone", n)
		}
	})
}

// Where clients of an endpoint give up early, as those of userspace mode do, it has as long as elsewhere to answer.
func TestSlowEndpointIsNotSilent(t *testing.T) {
	inStreet(t, 4, func(e *Ejector, s *street, u *updates, f *plan.Frontend) {
		s.mu.Lock()
		s.waited, s.slow = 250*time.Millisecond, time.Second
		s.mu.Unlock()
		s.set(endpoint(0), true)
		for range 240 {
			time.Sleep(period)
			if u.count(shop) > 0 {
				t.Fatal("it is ejected")
			}
		}
		s.mu.Lock()
		s.slow = 0
		s.mu.Unlock()
		time.Sleep(barredSilence + 2*patience)
		if u.count(shop) != 1 {
			t.Error("one that answers no more is not ejected")
		}
	})
}

// If not all endpoints can be watched, that is told, and those that are come and go as usual.
func TestTooManyToWatch(t *testing.T) {
	inStreet(t, 4, func(e *Ejector, s *street, u *updates, f *plan.Frontend) {
		s.mu.Lock()
		s.tooMany = true
		s.mu.Unlock()
		s.set(endpoint(0), true)
		time.Sleep(mendPeriod)
		if err := e.Err(); !errors.Is(err, dataplane.ErrTooManyWatched) {
			t.Errorf("it says %v", err)
		}
		s.mu.Lock()
		s.watches = 0
		s.mu.Unlock()
		time.Sleep(time.Minute)
		s.mu.Lock()
		if s.watches > 20 { // for each trial, its end, and every ten seconds
			t.Errorf("watched %d times in a minute", s.watches)
		}
		s.mu.Unlock()
		trial := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return bool(s.watched[endpoint(0)])
		}
		for range int(2 * maxPause / period) {
			if time.Sleep(period); trial() {
				return
			}
		}
		t.Error("the witness is not told of a trial")
	})
}

// If it is not seen who answers, that is told, those that are left out come back, and it is tried again.
func TestBlindWitness(t *testing.T) {
	inStreet(t, 4, func(e *Ejector, s *street, u *updates, f *plan.Frontend) {
		s.set(endpoint(0), true)
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		s.err, s.watches = errors.New("no such table"), 0
		s.mu.Unlock()
		time.Sleep(3*firstPause + 4*time.Second) // two pauses, and a probe after each
		u.mu.Lock()
		if list := u.ejected[shop]; len(list) != 1 || !list[0].OnTrial {
			t.Errorf("ejected are %+v", list)
		}
		u.mu.Unlock()
		if err := e.Err(); err == nil {
			t.Error("it is not told")
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		if s.watches < 2 || s.watches > 20 {
			t.Errorf("tried %d times in a minute", s.watches)
		}
		s.err = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		if err := e.Err(); err != nil || u.count(shop) != 1 {
			t.Errorf("then %v, and %d are ejected", err, u.count(shop))
		}
	})
}
