package web

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/status"
)

func TestPlotPlacesChangesByTimeAndLatency(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	p := newPlot([]status.Change{ // the newest first
		{At: now, Latency: 0.001, Revision: 3},
		{At: now.Add(-time.Minute), Latency: 3600, Failed: 1, Revision: 2},
		{At: now.Add(-2 * time.Minute), Latency: 0, Took: 0.1, Revision: 1, Set: 2, Services: []string{"default/web"}},
	}, now)
	want := []point{
		{X: 1152, Y: 81.6, R: pointRadius, Text: "08:00:00, revision 3: 1ms; 0 frontends set, 0 removed"},
		{X: 602, Y: plotTop, R: failureRadius, Failed: true, Text: "07:59:00, revision 2: 1h0m0s; 0 frontends set, 0 removed, 1 refused"},
		{X: 52, Y: 44.8, R: pointRadius, Text: "07:58:00, revision 1: 100ms; 2 frontends set, 0 removed; default/web"},
	}
	if diff := cmp.Diff(want, p.Points); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
	labels := []string{p.Median, p.Slowest}
	for _, l := range slices.Concat(p.Lines, p.Marks) {
		labels = append(labels, l.Label)
	}
	if diff := cmp.Diff([]string{"100ms", "1h0m0s", "1ms", "10ms", "100ms", "1s", "10s", "2 min ago", "90 s ago", "60 s ago", "30 s ago", "now"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestWithoutChangesThereIsNoPlot(t *testing.T) {
	if p := newPlot(nil, time.Now()); p != nil {
		t.Errorf("plot is %+v", p)
	}
}

func TestPlotOfFastChanges(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	p := newPlot([]status.Change{{At: now, Latency: 0.01}}, now)
	if got := p.Lines[len(p.Lines)-1].Label; got != "100ms" {
		t.Errorf("the top of the plot is %s", got)
	}
}
