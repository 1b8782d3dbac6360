package web

import (
	"net/http"
	"slices"
	"strings"

	"sluice/internal/history"
	"sluice/internal/model"
	"sluice/internal/status"
)

const (
	maxEvents     = 50  // on the page of a Service
	maxNodeEvents = 200 // on that of the node
)

// eventsPage shows what happened on the node.
type eventsPage struct {
	frame
	Namespace string
	eventList
}

// eventList is a list of events.
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
	events := h.eventsOf(history.Query{Namespace: namespace, Most: maxNodeEvents})
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

func eventRows(events []history.Event) []eventRow {
	out := make([]eventRow, 0, len(events))
	for i := range events {
		e := &events[i]
		row := eventRow{ID: e.ID, Time: clockTime(e.At), Service: e.Service, Text: e.Text()}
		if namespace, name, ok := strings.Cut(e.Service, "/"); ok {
			row.Link = serviceLink(model.Name{Namespace: namespace, Name: name})
		}
		switch e.Kind {
		case history.Failed:
			row.Level = status.Bad
		case history.Refused, history.EndpointRemoved, history.EndpointDraining, history.ServiceRemoved:
			row.Level = status.Fair
		}
		out = append(out, row)
	}
	slices.Reverse(out)
	return out
}
