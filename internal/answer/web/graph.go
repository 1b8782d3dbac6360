package web

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/internal/answer/status"
	"sluice/internal/observe/history"
)

const (
	// The coordinates of a graph, which stretches to the size of its place.
	graphHeight = 100
	sparkHeight = 20
	// sparkPoints is the number of points of a graph in a row, which is small.
	sparkPoints = 30
	// visible is the part of the height that a single refusal has beside any number of
	// connections.
	visible = 20
)

// graph is the traffic of a Service, or of all, over the last 15 minutes.
type graph struct {
	Title         string
	Width, Height int
	// Area and Line are the connections, Refused the refusals, as SVG paths.
	Area, Line, Refused string
	Top                 string // value at the top
	Marks               []mark // of the time
	Changes             []moment
	Short               bool // marks of changes, because there are many
}

// moment is when something happened, at X percent of the width.
type moment struct {
	X    float64
	Text string
}

// newGraph returns the graph of a Service, with marks where it or its endpoints changed.
func newGraph(of recording, events []history.Event) *graph {
	g, s := draw("New connections in 15 minutes", of)
	for _, e := range events {
		if e.Kind == history.Refused || of.end.Sub(e.At) > s.window {
			continue
		}
		g.Changes = append(g.Changes, moment{s.share(e.At), clockTime(e.At) + " " + e.Text()})
	}
	return g
}

// newNodeGraph returns the graph of all Services, with marks where something changed. Changes in
// the same step share one.
func newNodeGraph(of recording, changes []status.Change) *graph {
	g, s := draw("Connections and refusals in 15 minutes", of)
	g.Short = true
	last := int64(-1)
	for i := range changes {
		c := &changes[i]
		if of.end.Sub(c.At) > s.window {
			break // they are sorted
		}
		if n := numberOf(c.At); n != last {
			g.Changes, last = append(g.Changes, moment{s.share(c.At), describe(c)}), n
		} else {
			g.Changes[len(g.Changes)-1].Text += "\n" + describe(c)
		}
	}
	return g
}

func draw(title string, of recording) (*graph, scale) {
	top := ceiling(max(highest(of.connections), highest(of.refused)))
	g := &graph{Title: title, Width: steps, Height: graphHeight, Top: perSecond(top, true) + " per second"}
	g.Line = stairs(of.connections, steps, graphHeight, top, 0)
	g.Area = closed(g.Line, steps, graphHeight)
	if highest(of.refused) > 0 {
		g.Refused = stairs(of.refused, steps, graphHeight, top, graphHeight/visible)
	}
	s := scale{now: of.end, window: steps * step}
	g.Marks = s.marks()
	return g, s
}

// spark returns a small graph without labels.
func spark(of recording) *graph {
	connections, refused := coarse(of.connections), coarse(of.refused)
	top := ceiling(max(highest(connections), highest(refused)))
	g := &graph{Width: sparkPoints, Height: sparkHeight, Line: stairs(connections, sparkPoints, sparkHeight, top, 0)}
	if highest(refused) > 0 {
		g.Refused = stairs(refused, sparkPoints, sparkHeight, top, sparkHeight/visible)
	}
	return g
}

// coarse returns the highest of each few values, so that no peak is lost.
func coarse(values []float32) (out []float32) {
	const few = steps / sparkPoints
	for end := len(values); end > 0; end -= few {
		out = append(out, slices.Max(values[max(0, end-few):end]))
	}
	slices.Reverse(out)
	return out
}

// highest is 0 of none.
func highest(values []float32) float64 {
	if len(values) == 0 {
		return 0
	}
	return float64(slices.Max(values))
}

// ceiling is the next of 1, 2, 5, 10 and so on.
func ceiling(v float64) float64 {
	if v <= 0.1 {
		return 0.1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 5} {
		if v <= factor*power*1.0001 {
			return factor * power
		}
	}
	return 10 * power
}

// stairs draws values as steps that end at the right edge. Where nothing is known yet,
// nothing is drawn. What is more than 0 is at least so high.
func stairs(values []float32, width, height int, top float64, least int) string {
	if len(values) == 0 {
		return ""
	}
	var b strings.Builder
	x, last := width-len(values), -1
	for i, v := range values {
		y := int(math.Round(float64(height) * (1 - min(1, float64(v)/top))))
		if v > 0 {
			y = min(y, height-least)
		}
		switch {
		case i == 0:
			fmt.Fprintf(&b, "M%d %d", x, y)
		case y != last:
			fmt.Fprintf(&b, "H%dV%d", x+i, y)
		}
		last = y
	}
	fmt.Fprintf(&b, "H%d", width)
	return b.String()
}

// closed makes an area of a path down to the baseline.
func closed(line string, width, height int) string {
	if line == "" {
		return ""
	}
	start, _, _ := strings.Cut(strings.TrimPrefix(line, "M"), " ")
	return fmt.Sprintf("%sV%dH%sZ", line, height, start)
}

// share is where a time is in the window, in percent.
func (s *scale) share(at time.Time) float64 {
	return round(100 * (1 - min(1, max(0, s.now.Sub(at).Seconds()/s.window.Seconds()))))
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05") }
