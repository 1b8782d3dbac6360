package web

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/internal/printable"
	"sluice/internal/status"
)

// The size of the plot, and of the room for its labels.
const (
	plotWidth, plotHeight      = 1160.0, 120.0
	plotLeft, plotRight        = 52.0, 8.0
	plotTop, plotBottom        = 8.0, 20.0
	plotBaseline               = plotHeight - plotBottom
	pointRadius, failureRadius = 3.0, 4.0
)

// Limits of the axes.
const (
	minWindow  = time.Minute
	minLatency = 100 * time.Microsecond
	minDecades = 3 // of latency
	maxDecades = 5
)

// plot is the latency of recent changes over time, on a scale of powers of ten.
type plot struct {
	Width, Height, Left, Right, Baseline float64
	Points                               []point
	Lines                                []line // of the latency
	Marks                                []line // of the time
	Median, Slowest                      string
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

func newPlot(changes []status.Change, now time.Time) *plot {
	if len(changes) == 0 {
		return nil
	}
	latencies := make([]time.Duration, len(changes))
	for i := range changes {
		latencies[i] = latency(&changes[i])
	}
	slices.Sort(latencies)
	slowest := latencies[len(latencies)-1]
	p := &plot{
		Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotWidth - plotRight, Baseline: plotBaseline,
		Median: printable.Duration(latencies[len(latencies)/2]), Slowest: printable.Duration(slowest),
	}
	s := scale{window: max(minWindow, now.Sub(changes[len(changes)-1].At)), now: now} // since the oldest
	s.decades = min(maxDecades, max(minDecades, math.Ceil(decadesOf(slowest))))
	for i := range changes {
		p.Points = append(p.Points, s.point(&changes[i]))
	}
	for d, power := 10*minLatency, 1.0; power <= s.decades; d, power = 10*d, power+1 {
		p.Lines = append(p.Lines, line{s.y(d), printable.Duration(d)})
	}
	for quarters := 4; quarters > 0; quarters-- {
		ago := s.window * time.Duration(quarters) / 4
		p.Marks = append(p.Marks, line{s.x(now.Add(-ago)), duration(ago) + " ago"})
	}
	p.Marks = append(p.Marks, line{p.Right, "now"})
	return p
}

// scale maps times and latencies to coordinates.
type scale struct {
	now     time.Time
	window  time.Duration
	decades float64
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
	return round(plotWidth - plotRight - (plotWidth-plotRight-plotLeft)*min(1, max(0, share)))
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

// describe describes a change.
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
func round(x float64) float64 { return math.Round(x*10) / 10 }
