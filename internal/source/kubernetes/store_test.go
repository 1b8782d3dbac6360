package kubernetes

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"sluice/internal/model"
	"sluice/internal/source"
)

// sliceReader stands between a server's answers and the store of slices.
func sliceReader(sink model.Sink) *listWatch {
	kinds := kindsOf(newFakeClient(), source.Proxy{NodeName: "here"})
	gate := newSinkGate()
	gate.open(sink, kinds)
	for _, k := range kinds {
		if k.name == "EndpointSlice" {
			return &listWatch{kind: k, api: k.apis[0], store: newStore(gate, &room{limit: func() int64 { return 0 }}, func(missing) {}, func(missing) {})}
		}
	}
	panic("slices are not followed")
}

// replace reads slices one by one, as a stream does, and hands them to the store.
func replace(t testing.TB, l *listWatch, n int, slice func(int) *discoveryv1.EndpointSlice) {
	t.Helper()
	list := l.store.begin()
	for i := range n {
		r, err := l.recordOf(slice(i))
		if err != nil {
			t.Fatal(err)
		}
		list.add(r.name(), r.events)
	}
	if err := l.store.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
}

// quiet is a sink that keeps the state and counts events.
type quiet struct {
	state  *model.State
	events int
}

func (q *quiet) Update(events ...model.Event) {
	q.events += len(events)
	q.state.Apply(&model.Dirty{}, events...)
}

func (q *quiet) Synced() {}

// TestOnlyTheModelStaysInMemory counts everything: the state, the store and
// what their values refer to.
func TestOnlyTheModelStaysInMemory(t *testing.T) {
	const slices, perSlice, limit = 5000, 50, 60 << 20
	before := heap()
	sink := &quiet{state: model.NewState()}
	reader := sliceReader(sink)
	replace(t, reader, slices, func(i int) *discoveryv1.EndpointSlice { return bigSlice(i, perSlice) })
	if sink.events != slices {
		t.Fatalf("%d events for %d slices", sink.events, slices)
	}
	first := heap() - before
	replace(t, reader, slices, func(i int) *discoveryv1.EndpointSlice { return bigSlice(i, perSlice) })
	if sink.events != slices {
		t.Errorf("%d events for slices that did not change", sink.events-slices)
	}
	second := heap() - before
	t.Logf("%d endpoints take %.1f MB, %.1f MB after they were listed again", slices*perSlice, mb(first), mb(second))
	if first > limit || second > limit {
		t.Errorf("more than %.1f MB", mb(limit))
	}
	if second > first+1<<20 {
		t.Error("the second list left something behind")
	}
	runtime.KeepAlive(sink)
	runtime.KeepAlive(reader)
}

func TestTriggerAloneIsNoChange(t *testing.T) {
	sink := &quiet{state: model.NewState()}
	reader := sliceReader(sink)
	at := func(trigger string, addrs ...string) func(int) *discoveryv1.EndpointSlice {
		return func(int) *discoveryv1.EndpointSlice {
			s := aSlice("web-1", addrs...)
			s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: trigger}
			return s
		}
	}
	replace(t, reader, 1, at("2026-01-02T03:04:05Z", "10.0.0.1"))
	replace(t, reader, 1, at("2026-01-02T03:04:06Z", "10.0.0.1"))
	if sink.events != 1 {
		t.Errorf("%d events for one change", sink.events)
	}
	replace(t, reader, 1, at("2026-01-02T03:04:07.5Z", "10.0.0.2"))
	want := time.Date(2026, 1, 2, 3, 4, 7, 500_000_000, time.UTC)
	if got := sink.state.Slices(model.Name{Namespace: "default", Name: "web"})[0].Trigger; sink.events != 2 || !got.Equal(want) {
		t.Errorf("%d events and trigger %v, want 2 and %v", sink.events, got, want)
	}
}

// TestFirstListIsPassedOnAsItComes has it broken off, and begun again when less is there.
func TestFirstListIsPassedOnAsItComes(t *testing.T) {
	sink := &quiet{state: model.NewState()}
	reader := sliceReader(sink)
	add := func(to *listing, from, n int) {
		for i := range n {
			r, err := reader.recordOf(aSlice(fmt.Sprint("web-", from+i), "10.0.0.1"))
			if err != nil {
				t.Fatal(err)
			}
			to.add(r.name(), r.events)
		}
	}
	has := func(want int, when string) {
		t.Helper()
		if got := len(sink.state.Slices(model.Name{Namespace: "default", Name: "web"})); got != want {
			t.Errorf("%s: %d slices, want %d", when, got, want)
		}
	}
	first := reader.store.begin()
	add(first, 0, batchSize+1)
	has(batchSize, "before the list is complete")
	second := reader.store.begin()
	has(batchSize+1, "when it was broken off")
	add(first, 1000, 1)
	add(second, 1, 3)
	second.remove(model.Name{Namespace: "default", Name: "web-2"})
	if err := reader.store.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	has(2, "when the next one is complete")

	third, events := reader.store.begin(), sink.events
	add(third, 2, 5)
	if sink.events != events {
		t.Error("a later list is passed on before it is complete")
	}
	if err := reader.store.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	has(5, "when a later one is complete")
}

// TestStoreRefusesOtherObjects changes nothing if a list cannot be understood.
func TestStoreRefusesOtherObjects(t *testing.T) {
	sink := &quiet{state: model.NewState()}
	reader := sliceReader(sink)
	replace(t, reader, 3, func(i int) *discoveryv1.EndpointSlice { return aSlice(fmt.Sprint("web-", i), "10.0.0.1") })
	for name, do := range map[string]func(any) error{
		"Add": reader.store.Add, "Update": reader.store.Update, "Delete": reader.store.Delete,
		"Replace": func(o any) error { return reader.store.Replace([]any{o}, "") },
	} {
		if do(aSlice("web-0")) == nil {
			t.Errorf("%s takes an API object", name)
		}
	}
	if sink.events != 3 {
		t.Errorf("%d events, want 3", sink.events)
	}
}

func BenchmarkRelistOfUnchangedSlices(b *testing.B) {
	const slices = 1000
	reader := sliceReader(&quiet{state: model.NewState()})
	objects := make([]*discoveryv1.EndpointSlice, slices)
	for i := range objects {
		objects[i] = bigSlice(i, 50)
	}
	for b.Loop() {
		replace(b, reader, slices, func(i int) *discoveryv1.EndpointSlice { return objects[i] })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*slices), "ns/slice")
}

func bigSlice(i, n int) *discoveryv1.EndpointSlice {
	s := aSlice(fmt.Sprintf("service-%d-abcde", i))
	s.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("service-%d", i)
	s.ResourceVersion = fmt.Sprint(1000 + i)
	for j := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)},
			NodeName:  ptr(fmt.Sprintf("node-%d.example.internal", (i+j)%1000)),
			Zone:      ptr("zone-a"),
			TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("pod-%d-%d", i, j)},
		})
	}
	return s
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }
