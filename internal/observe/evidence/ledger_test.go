package evidence

import (
	"net/netip"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

var (
	start = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	web   = To{netip.MustParseAddrPort("10.244.1.1:8080"), model.TCP, plan.PodClient}
)

// numbered is a connection to web.
func numbered(n uint32, replied bool) connection {
	return connection{attempt{n, netip.AddrPortFrom(netip.MustParseAddr("10.244.1.9"), uint16(n))}, replied, time.Time{}}
}

// history is a ledger and the time.
type history struct {
	*ledger
	now time.Time
}

// newHistory has looked once.
func newHistory() *history {
	h := &history{newLedger(), start}
	h.ledger.look(start)
	return h
}

// look has the table look like this after a while.
func (h *history) look(after time.Duration, waiting, replied []uint32) Report {
	h.now = h.now.Add(after)
	for _, n := range waiting {
		h.see(web, numbered(n, false))
	}
	for _, n := range replied {
		h.see(web, numbered(n, true))
	}
	h.ledger.look(h.now)
	return h.report()
}

func (h *history) refuse(n uint32) Report {
	h.ended(web, numbered(n, false), h.now)
	return h.report()
}

func (h *history) report() Report {
	if r := h.records[web]; r != nil {
		return r.Report
	}
	return Report{}
}

func TestStatesOfAnEndpoint(t *testing.T) {
	type list = []uint32
	tests := []struct {
		name   string
		run    func(h *history)
		want   State
		failed uint64
	}{
		{"nobody tried", func(h *history) { h.look(0, nil, nil) }, Fine, 0},
		{"an attempt that has just begun", func(h *history) { h.look(0, list{1}, nil) }, Fine, 0},
		{"answered", func(h *history) { h.look(0, list{1}, nil); h.look(time.Second, nil, list{1}) }, Fine, 0},
		{"silent", func(h *history) { h.look(0, list{1}, nil); h.look(time.Second, list{1, 2}, nil) }, Silent, 1},
		{"given up by the kernel while the table is read", func(h *history) {
			h.look(0, list{1}, nil)
			h.look(time.Second, list{1}, nil)
			h.look(time.Second, nil, nil)
			h.refuse(1)
		}, Silent, 1},
		{"silent for two", func(h *history) {
			h.look(0, list{1}, nil)
			h.look(time.Second, list{1, 2}, nil)
			h.look(time.Second, list{1, 2}, nil)
		}, Silent, 2},
		{"silent beside connections from before", func(h *history) {
			h.look(0, list{1}, list{7})
			h.look(time.Second, list{1}, list{7})
			h.look(time.Second, list{1}, list{7})
		}, Silent, 1},
		{"silent for some", func(h *history) {
			h.look(0, list{1}, list{7})
			h.look(time.Second, list{1}, list{7})
			h.look(time.Second, list{1}, list{7, 8})
		}, Flaky, 1},
		{"silent and back", func(h *history) {
			h.look(0, list{1}, nil)
			h.look(time.Second, list{1}, nil)
			h.look(time.Second, nil, list{1})
			h.look(recent, nil, list{1})
		}, Fine, 0},
		{"given up by the kernel", func(h *history) {
			h.look(0, list{1}, nil)
			h.look(time.Second, list{1}, nil)
			h.refuse(1)
			h.look(time.Second, nil, nil)
		}, Silent, 1},
		{"refused", func(h *history) { h.look(0, nil, nil); h.refuse(1); h.refuse(2) }, Resets, 2},
		{"refused before the first look", func(h *history) { h.refuse(1) }, Resets, 1},
		{"refused and back", func(h *history) {
			h.refuse(1)
			h.look(time.Second, nil, nil)
			h.look(time.Second, nil, list{2})
			h.look(recent, nil, list{2})
		}, Fine, 0},
		{"refused for some", func(h *history) {
			h.refuse(1)
			h.look(time.Second, nil, nil)
			h.look(time.Second, nil, list{2})
			h.refuse(3)
		}, Flaky, 2},
		{"given up before the first look", func(h *history) {
			h.ledger = newLedger()
			h.look(0, list{1, 3}, list{7})
			h.look(time.Second, list{1, 2, 3}, list{7})
			h.look(time.Second, list{1, 3}, list{2, 7})
			h.refuse(1)
			h.look(time.Second, nil, nil)
			h.refuse(3)
		}, Fine, 0},
		{"waiting since before the first look, and later", func(h *history) {
			h.ledger = newLedger()
			h.look(0, list{1}, nil)
			h.look(time.Second, list{1, 2}, nil)
			h.look(time.Second, list{1, 2}, nil)
		}, Silent, 1},
		{"repeated since the first look", func(h *history) {
			h.ledger = newLedger()
			c := numbered(1, false)
			for range 4 {
				h.see(web, c)
				h.look(time.Second, nil, nil)
				c.until = c.until.Add(time.Second)
			}
		}, Silent, 1},
		{"failures of long ago", func(h *history) {
			h.refuse(1)
			h.look(stale+time.Second, nil, nil)
		}, Fine, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory()
			tt.run(h)
			if got := h.report(); got.State != tt.want || got.Failed != tt.failed {
				t.Errorf("%v with %d failures, want %v with %d: %+v", got.State, got.Failed, tt.want, tt.failed, got)
			}
		})
	}
}

// The proxy itself waits for less than a client would, and tries another endpoint then.
func TestAttemptsOfTheProxy(t *testing.T) {
	const short = late / 4
	type tries []dataplane.Outcome
	const ok, no, none = dataplane.Accepted, dataplane.Refused, dataplane.Unanswered
	for _, tt := range []struct {
		name   string
		tries  tries
		want   State
		failed uint64
	}{
		{"answered", tries{ok, ok}, Fine, 0},
		{"refused", tries{no}, Resets, 1},
		{"refused after answers", tries{ok, no, no}, Resets, 2},
		{"refused now and then", tries{no, ok, no}, Flaky, 2},
		{"slow once", tries{none, none, none, ok}, Fine, 0},
		{"slow twice", tries{none, none, none, ok, none}, Fine, 0},
		{"silent", tries{none, none, none, none}, Silent, 1},
		{"silent for long", tries{none, none, none, none, none, none, none, none}, Silent, 2},
		{"silent and then not", tries{none, none, none, none, ok}, Flaky, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory()
			for _, outcome := range tt.tries {
				h.try(web, dataplane.Attempt{Outcome: outcome, Took: short}, h.now)
				h.look(short, nil, nil)
			}
			if got := h.report(); got.State != tt.want || got.Failed != tt.failed {
				t.Errorf("%v with %d failures, want %v with %d: %+v", got.State, got.Failed, tt.want, tt.failed, got)
			}
			h.look(stale+time.Second, nil, nil)
			if h.look(stale+time.Second, nil, nil); len(h.records) != 0 {
				t.Errorf("records %v are never forgotten", h.records)
			}
		})
	}
}

func TestSinceIsThatOfTheFirstFailure(t *testing.T) {
	h := newHistory()
	h.look(0, []uint32{1}, nil)
	h.look(2*time.Second, []uint32{1}, nil)
	h.look(time.Minute, []uint32{1, 2}, nil)
	got := h.look(2*time.Second, []uint32{1, 2}, nil)
	if want := start.Add(2 * time.Second); !got.Since.Equal(want) || got.Failed != 2 || got.Waiting != 2 {
		t.Errorf("%+v, want 2 failures since %v", got, want)
	}
}

func TestDatagramsTellNothing(t *testing.T) {
	h := newHistory()
	to := web
	to.Protocol = model.UDP
	for range 3 {
		h.see(to, numbered(1, false))
		h.now = h.now.Add(time.Minute)
		h.ledger.look(h.now)
	}
	h.ended(to, numbered(1, false), h.now)
	if r := h.records[to]; r != nil {
		t.Errorf("record %+v", r)
	}
}

func TestWhatSaysNothingIsForgotten(t *testing.T) {
	h := newHistory()
	h.look(0, nil, []uint32{1, 2})
	h.look(time.Second, nil, nil)
	if len(h.records) != 0 {
		t.Errorf("records %v", h.records)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	h := newHistory()
	var many []uint32
	for n := range uint32(maxAttempts) {
		many = append(many, n)
	}
	h.look(0, many, nil)
	got := h.look(time.Second, append(many, maxAttempts+1, maxAttempts+2), nil)
	if got.Waiting != maxAttempts+2 || got.Failed != maxAttempts || h.attempts != maxAttempts {
		t.Errorf("%d waiting, %d failed, %d remembered", got.Waiting, got.Failed, h.attempts)
	}
}
