package web

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/answer/status"
)

func TestPlotPlacesChangesByTimeAndLatency(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	p := newPlot([]status.Change{ // the newest first
		{At: now, Latency: 0.001, Revision: 3},
		{At: now.Add(-time.Minute), Latency: 3600, Failed: 1, Revision: 2},
		{At: now.Add(-15 * time.Minute), Latency: 0, Took: 0.1, Revision: 1, Set: 2, Services: []string{"default/web"}},
		{At: now.Add(-16 * time.Minute), Latency: 1, Revision: 0},
	}, now, windowOf(""))
	want := []point{
		{X: 99.5, Y: 92.8, R: pointRadius, Text: "08:00:00, revision 3: 1ms; 0 frontends set, 0 removed"},
		{X: 92.9, Y: plotTop, R: failureRadius, Failed: true, Text: "07:59:00, revision 2: 1h0m0s; 0 frontends set, 0 removed, 1 refused"},
		{X: 0.5, Y: 54.4, R: pointRadius, Text: "07:45:00, revision 1: 100ms; 2 frontends set, 0 removed; default/web"},
	}
	if diff := cmp.Diff(want, p.Points); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	labels := []string{p.Median, p.Slowest}
	for _, l := range p.Lines {
		labels = append(labels, l.Label)
	}
	for _, m := range p.Marks {
		labels = append(labels, m.Label)
	}
	if diff := cmp.Diff([]string{"100ms", "1h0m0s", "1ms", "10ms", "100ms", "1s", "10s", "now", "5 min ago", "10 min ago", "15 min ago"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// A change of long ago must not squeeze those of the last minute.
func TestWindowsOfThePlotAreFixed(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	changes := []status.Change{{At: now.Add(-30 * time.Second)}, {At: now.Add(-14 * time.Minute)}, {At: now.Add(-50 * time.Minute)}, {At: now.Add(-2 * time.Hour)}}
	for name, want := range map[string]struct {
		points int
		first  float64 // X of the newest
	}{"1m": {1, 50}, "": {2, 96.2}, "1h": {3, 98.68}, "nonsense": {2, 96.2}} {
		p := newPlot(changes, now, windowOf(name))
		if len(p.Points) != want.points || p.Points[0].X != want.first {
			t.Errorf("window %q has %+v, want %d points, the newest at %v", name, p.Points, want.points, want.first)
		}
	}
	if p := newPlot(changes[3:], now, windowOf("")); p == nil || len(p.Points) > 0 {
		t.Errorf("the plot of a quiet time is %+v", p)
	}
}

func TestWithoutChangesThereIsNoPlot(t *testing.T) {
	if p := newPlot(nil, time.Now(), windowOf("")); p != nil {
		t.Errorf("plot is %+v", p)
	}
}

func TestPlotOfFastChanges(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	p := newPlot([]status.Change{{At: now, Latency: 0.01}}, now, windowOf(""))
	if got := p.Lines[len(p.Lines)-1].Label; got != "100ms" {
		t.Errorf("the top of the plot is %s", got)
	}
}
