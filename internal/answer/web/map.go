package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"sluice/internal/answer/services"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/observe/verdict"
)

const (
	// maxSquares is how many Services the map shows: the broken ones, and then the busiest.
	maxSquares = 10_000
	// Of more or less than these, squares are small or big.
	manySquares, fewSquares = 1000, 100
)

// mapPage shows all Services of the node at a glance: a block for each namespace, and a square
// for each Service, whose look is its verdict and whose size is its traffic.
type mapPage struct {
	frame
	Blocks  []block
	Words   []wordCount // what the looks mean
	Counted bool        // sizes mean something
	Known   int
	More    int // Services without a square
	// Scale is a class: squares are bigger where there is room.
	Scale string
}

// wordCount is how many Services have a verdict.
type wordCount struct {
	verdict.Word
	Count int
}

type block struct {
	Namespace, Link string
	Count, Faulty   int
	Squares         template.HTML
	squares         []square
}

type square struct {
	*service
	is   *verdict.Service
	rate services.Rates
	size int // 0 for no traffic, and one more for each power of ten
}

// sizes are the limits of the sizes of squares, per second.
var sizes = [...]float64{0, 1, 10, 100}

func sizeOf(rate float64) int {
	for size, most := range sizes {
		if rate == 0 || rate < most {
			return size
		}
	}
	return len(sizes)
}

func (h *Handler) nodeMap(r *http.Request) answer {
	report, s := h.Status(), h.snapshot(r.Context())
	return answer{http.StatusOK, mapTemplate, newMap(report, s)}
}

func newMap(r *status.Report, s *snapshot) *mapPage {
	p := &mapPage{frame: newFrame("Map", r), Counted: s.counters.counted(), Known: len(s.services)}
	switch {
	case p.Known > manySquares:
		p.Scale = "dense"
	case p.Known < fewSquares:
		p.Scale = "sparse"
	}
	counts := map[verdict.Word]int{}
	for _, v := range s.verdicts() {
		counts[v.Word]++
	}
	for _, w := range verdict.Words {
		if counts[w] > 0 {
			p.Words = append(p.Words, wordCount{w, counts[w]})
		}
	}
	shown := s.search(query{})
	p.More = max(0, len(shown)-maxSquares)
	blocks := map[string]*block{}
	for _, svc := range shown[:len(shown)-p.More] {
		b := blocks[svc.Name.Namespace]
		if b == nil {
			b = &block{Namespace: svc.Name.Namespace, Link: query{Namespace: svc.Name.Namespace}.Link()}
			blocks[b.Namespace] = b
		}
		b.add(square{svc, s.verdict(svc), s.counters.of(svc.frontends), 0})
	}
	for _, b := range blocks {
		b.draw()
		p.Blocks = append(p.Blocks, *b)
	}
	slices.SortFunc(p.Blocks, func(a, b block) int {
		return cmp.Or(first(a.Faulty > 0, b.Faulty > 0), cmp.Compare(a.Namespace, b.Namespace))
	})
	return p
}

func (b *block) add(q square) {
	q.size = sizeOf(q.rate.Connections + q.rate.Refused.Total())
	b.Count++
	if q.is.Faulty() {
		b.Faulty++
	}
	b.squares = append(b.squares, q)
}

// draw draws the squares: the broken ones first, then the biggest, so that rows are even. There
// are thousands of them, for which a template takes too long.
func (b *block) draw() {
	slices.SortFunc(b.squares, func(a, b square) int {
		return cmp.Or(first(a.is.Faulty(), b.is.Faulty()), b.size-a.size, cmp.Compare(a.index, b.index))
	})
	var out strings.Builder
	for i := range b.squares {
		q := &b.squares[i]
		skip := "" // thousands of squares must not be in the way of the keyboard; the list has them too
		if !q.is.Faulty() {
			skip = ` tabindex="-1"`
		}
		fmt.Fprintf(&out, `<a class="sq %s t%d" href="%s" title="%s"%s></a>`, q.is.Word, q.size,
			template.HTMLEscapeString(serviceLink(q.Name)), template.HTMLEscapeString(printable.Escape(q.title())), skip)
	}
	b.Squares, b.squares = template.HTML(out.String()), nil
}

func (q *square) title() string {
	out := q.Name.Name + ": " + q.is.Word.Text()
	if q.is.Why != "" {
		out += ", " + q.is.Why
	}
	if q.rate.Connections > 0 {
		out += ", " + perSecond(q.rate.Connections, true) + " connections/s"
	}
	if refused := q.rate.Refused.Total(); refused > 0 {
		out += ", " + perSecond(refused, true) + " refused/s"
	}
	return out
}

// first compares so that what holds is first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
