package web

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
)

// The plot is as wide as its place: X is in percent, and all else in pixels.
const (
	plotHeight                 = 132.0
	plotLeft, plotRight        = 0.5, 99.5
	plotTop, plotBottom        = 16.0, 20.0
	plotBaseline               = plotHeight - plotBottom
	pointRadius, failureRadius = 3.0, 4.0
)

// Limits of the latency.
const (
	minLatency = 100 * time.Microsecond
	minDecades = 3
	maxDecades = 5
)

// window is how much time a plot covers. It is fixed, so that old changes do not
// squeeze the new ones.
type window struct {
	Name   string // in the URL, "" for the default
	Text   string
	length time.Duration
}

var windows = []window{{"1m", "1 min", time.Minute}, {"", "15 min", 15 * time.Minute}, {"1h", "1 h", time.Hour}}

// windowOf returns the window of a name, the default for an unknown one.
func windowOf(name string) window {
	if i := slices.IndexFunc(windows, func(w window) bool { return w.Name == name }); i >= 0 {
		return windows[i]
	}
	return windowOf("")
}

// plot is the latency of recent changes over time, on a scale of powers of ten.
type plot struct {
	Height, Baseline float64
	Points           []point
	Lines            []line // of the latency
	Marks            []mark // of the time
	Window           string
	Median, Slowest  string
}

// point is a change; Text is shown when the pointer is on it.
type point struct {
	X, Y, R float64
	Failed  bool
	Text    string
}

// line is a grid line and its label.
type line struct {
	At    float64
	Label string
}

// mark is a label of the time axis, and its CSS class.
type mark struct {
	At           float64
	Label, Class string
}

// newPlot plots the changes of a window. Without any change at all there is no plot.
func newPlot(changes []status.Change, now time.Time, w window) *plot {
	if len(changes) == 0 {
		return nil
	}
	s := scale{now: now, window: w.length, decades: minDecades}
	changes = changes[:s.within(changes)]
	p := &plot{Height: plotHeight, Baseline: plotBaseline, Marks: s.marks(), Window: w.Text}
	if len(changes) > 0 {
		latencies := make([]time.Duration, len(changes))
		for i := range changes {
			latencies[i] = latency(&changes[i])
		}
		slices.Sort(latencies)
		slowest := latencies[len(latencies)-1]
		p.Median, p.Slowest = printable.Duration(latencies[len(latencies)/2]), printable.Duration(slowest)
		s.decades = min(maxDecades, max(minDecades, math.Ceil(decadesOf(slowest))))
	}
	for i := range changes {
		p.Points = append(p.Points, s.point(&changes[i]))
	}
	for d, power := 10*minLatency, 1.0; power <= s.decades; d, power = 10*d, power+1 {
		p.Lines = append(p.Lines, line{s.y(d), printable.Duration(d)})
	}
	return p
}

// scale maps times and latencies to coordinates.
type scale struct {
	now     time.Time
	window  time.Duration
	decades float64
}

// within counts the changes in the window. They are sorted, the newest first.
func (s *scale) within(changes []status.Change) int {
	for i := range changes {
		if s.now.Sub(changes[i].At) > s.window {
			return i
		}
	}
	return len(changes)
}

// marks are at the thirds of the window. A narrow page has no room for those within.
func (s *scale) marks() []mark {
	out := make([]mark, 0, 4)
	for thirds, class := range []string{"last", "half", "half", "first"} {
		label := "now"
		if ago := s.window * time.Duration(thirds) / 3; ago > 0 {
			label = duration(ago) + " ago"
		}
		out = append(out, mark{s.x(s.now.Add(-s.window * time.Duration(thirds) / 3)), label, class})
	}
	return out
}

func (s *scale) point(c *status.Change) point {
	p := point{X: s.x(c.At), Y: s.y(latency(c)), R: pointRadius, Failed: c.Failed > 0, Text: describe(c)}
	if p.Failed {
		p.R = failureRadius
	}
	return p
}

func (s *scale) x(at time.Time) float64 {
	share := s.now.Sub(at).Seconds() / s.window.Seconds()
	return round(plotRight - (plotRight-plotLeft)*min(1, max(0, share)))
}

func (s *scale) y(latency time.Duration) float64 {
	return round(plotBaseline - (plotBaseline-plotTop)*min(1, max(0, decadesOf(latency)/s.decades)))
}

// decadesOf is how many powers of ten a latency is above minLatency.
func decadesOf(latency time.Duration) float64 {
	return math.Log10(max(minLatency, latency).Seconds() / minLatency.Seconds())
}

// latency is the time from the event to the kernel. A repair has no event: it is the
// duration of the commit.
func latency(c *status.Change) time.Duration {
	return time.Duration(max(c.Latency, c.Took) * float64(time.Second))
}

func describe(c *status.Change) string {
	text := fmt.Sprintf("%s, revision %d: %s; %d frontends set, %d removed", c.At.UTC().Format("15:04:05"), c.Revision,
		printable.Duration(latency(c)), c.Set, c.Removed)
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d refused", c.Failed)
	}
	if len(c.Services) > 0 {
		text += "; " + strings.Join(c.Services, ", ")
	}
	return text
}

// round keeps the coordinates short.
func round(x float64) float64 { return math.Round(x*100) / 100 }
