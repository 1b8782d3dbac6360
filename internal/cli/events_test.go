package cli

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/answer/control"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/question"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
)

// answeringLists serves a control socket with a list of Services and these Events.
func answeringLists(t *testing.T, events func(history.Query) *question.EventList) (socket string) {
	t.Helper()
	return serving(t, func(server *control.Server) {
		question.Services.Serve(server, func(_ context.Context, q *listing.Query) (*listing.List, error) {
			serves := verdict.Proxy{Word: verdict.Serving}
			switch q.Namespace {
			case "none":
				return &listing.List{Proxy: serves, Services: []listing.Service{}}, nil
			case "early":
				return &listing.List{Proxy: verdict.Proxy{Word: verdict.NotServing, Why: "no directory"}, Services: []listing.Service{}}, nil
			}
			return &listing.List{Proxy: serves, Total: 1, Services: []listing.Service{{Namespace: "default", Name: "web\x1b[2J", Service: verdict.Service{Word: verdict.Refused}}}}, nil
		})
		question.Events.Serve(server, func(_ context.Context, q *history.Query) (*question.EventList, error) { return events(*q), nil })
	})
}

func TestListsAndFormats(t *testing.T) {
	var asked history.Query
	socket := answeringLists(t, func(q history.Query) *question.EventList {
		asked = q
		return &question.EventList{Last: 7, Events: []history.Event{{ID: 7, Kind: history.EndpointAdded, Service: "default/web\x1b[2J", Endpoint: "10.0.0.1:80"}}}
	})
	tests := []struct {
		name string
		in   []string
		code int
		want string
	}{
		{"services", []string{"services"}, 0, `web\x1b[2J  REFUSED`},
		{"failing ones", []string{"services", "--failing"}, 1, "REFUSED"},
		{"no failing ones", []string{"services", "--failing", "-n", "none"}, 0, "NAMESPACE"},
		{"of a proxy that does not serve", []string{"services", "-n", "early"}, 1, "the proxy is NOT SERVING: no directory"},
		{"as JSON", []string{"services", "-o", "json"}, 0, `"verdict": "refused"`},
		{"as YAML", []string{"services", "-o", "yaml"}, 0, "verdict: refused\n"},
		{"as something else", []string{"services", "-o", "xml"}, 2, "it must be text, json or yaml"},
		{"for too long", []string{"services", "--top", "--interval", "1h"}, 2, "--interval: 1h0m0s is not possible (use up to 20s)"},
		{"at most some", []string{"services", "--top", "--interval", "1s", "--limit", "1"}, 0, "NAMESPACE"},
		{"an earlier name of the interval", []string{"services", "--top", "--over", "1h"}, 2, "--over has been deprecated, use --interval"},
		{"an earlier name of the limit", []string{"services", "--most", "1"}, 0, "--most has been deprecated, use --limit"},
		{"events", []string{"events"}, 0, `default/web\x1b[2J       endpoint 10.0.0.1:80 added`},
		{"events as JSON", []string{"events", "--json"}, 0, `"last": 7`},
		{"events as YAML", []string{"events", "-o", "yaml"}, 0, "kind: endpoint-added\n"},
		{"events of no Service", []string{"events", "web"}, 2, `"web" is not a Service: use NAMESPACE/NAME`},
		{"names are completed", []string{"__complete", "explain", ""}, 0, "default/web"},
		{"events of two Services", []string{"events", "a/b", "c/d"}, 2, "at most one Service"},
		{"events of a Service", []string{"events", "a/b", "-n", "a", "--last", "3"}, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append(test.in, "--control-socket", socket)
			if test.in[0] == "__complete" { // what is completed comes last
				args = []string{"__complete", test.in[1], "--control-socket", socket, test.in[2]}
			}
			code := Main(args, &stdout, &stderr)
			if text := stdout.String() + stderr.String(); code != test.code || !strings.Contains(text, test.want) {
				t.Errorf("exit code %d, want %d; %q is to be in\n%s", code, test.code, test.want, text)
			}
		})
	}
	if asked.Service != "a/b" || asked.Namespace != "a" || asked.Last != 3 {
		t.Errorf("the last query is %+v", asked)
	}
}

// A follower sees each Event once, also those of a proxy that starts again.
func TestEventsAreFollowed(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var process, asked atomic.Int64
	socket := answeringLists(t, func(q history.Query) *question.EventList {
		asked.Add(1)
		n := process.Load()
		reply := &question.EventList{Started: start.Add(time.Duration(n) * time.Hour), Last: 2}
		if q.After < 2 {
			reply.Events = []history.Event{{ID: 2, Kind: history.ServiceAdded, Service: "default/web"}}
		}
		return reply
	})
	ctx, cancel := context.WithCancel(t.Context())
	cmd := newCommand(&options{})
	out := &lockedBuffer{}
	cmd.SetOut(out)
	cmd.SetArgs([]string{"events", "-f", "-o", "json", "--control-socket", socket})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	lines := func() int { return strings.Count(out.String(), "\n") }
	testkit.Until(t, func() bool { return lines() == 1 })
	process.Add(1)
	testkit.Until(t, func() bool { return lines() == 2 })
	before := asked.Load()
	testkit.Until(t, func() bool { return asked.Load() == before+2 }) // and has shown what the first of them brought
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if n := lines(); n != 2 {
		t.Errorf("%d lines, want one for each process:\n%s", n, out.String())
	}
}
