package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/internal/answer/status"
	"sluice/internal/model"
	"sluice/internal/observe/history"
)

const (
	maxEvents     = 200  // on the page of a Service
	maxNodeEvents = 1000 // on that of the node
	// pause is the time without refusals after which the next ones are another event.
	pause = time.Minute
)

// eventsPage shows what happened on the node.
type eventsPage struct {
	frame
	Namespace string
	eventList
}

type eventList struct {
	Events    []eventRow // the newest first
	OfService bool       // all are of one Service
}

// eventRow is something that happened.
type eventRow struct {
	ID      uint64
	Time    string
	Service string // "" if it is about the node
	Link    string
	Text    string
	Level   status.Level // "" for an ordinary event
}

func (h *Handler) events(r *http.Request) answer {
	namespace := strings.TrimSpace(r.URL.Query().Get("namespace"))
	h.meter.read(r.Context()) // which tells the history of refusals
	events := h.eventsOf(history.Query{Namespace: namespace, Last: maxNodeEvents})
	return answer{http.StatusOK, eventsTemplate, &eventsPage{newFrame("Events", h.Status()), namespace, eventList{Events: eventRows(events)}}}
}

// eventsOf returns events, the oldest first.
func (h *Handler) eventsOf(q history.Query) []history.Event {
	if h.Events == nil {
		return nil
	}
	events, _ := h.Events(q)
	return events
}

// eventRows returns rows, the newest first. Refusals that go on are one event, whose time is
// when they began.
func eventRows(events []history.Event) []eventRow {
	out := make([]eventRow, 0, len(events))
	for _, e := range joined(events) {
		row := eventRow{ID: e.ID, Time: clockTime(e.At), Service: e.Service, Text: e.Text()}
		if namespace, name, ok := strings.Cut(e.Service, "/"); ok {
			row.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
		}
		switch e.Kind {
		case history.Failed:
			row.Level = status.Bad
		case history.Refused, history.EndpointSilent, history.EndpointResets, history.EndpointRemoved, history.EndpointDraining, history.ServiceRemoved:
			row.Level = status.Fair
		}
		out = append(out, row)
	}
	slices.Reverse(out)
	return out
}

// joined joins refusals of the same Service for the same cause, from the beginning of the first
// to the end of the last, unless there was a pause.
func joined(events []history.Event) (out []history.Event) {
	type refusal struct{ service, reason string }
	begun := map[refusal]int{}
	for _, e := range events {
		if e.Kind != history.Refused {
			out = append(out, e)
			continue
		}
		end := e.At
		e.At = end.Add(-time.Duration(e.Seconds * float64(time.Second)))
		key := refusal{e.Service, e.Reason}
		if i, known := begun[key]; known {
			if first := &out[i]; e.At.Sub(ended(first)) < pause {
				first.Packets += e.Packets
				first.Seconds = end.Sub(first.At).Seconds()
				continue
			}
		}
		begun[key] = len(out)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b history.Event) int { return a.At.Compare(b.At) })
	return out
}

// ended is when the last of some refusals was.
func ended(e *history.Event) time.Time {
	return e.At.Add(time.Duration(e.Seconds * float64(time.Second)))
}
