package question

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/answer/control"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/observe/history"
	"sluice/internal/testkit"
)

// serving serves a control socket until the test ends, and returns a client of it.
func serving(t *testing.T, add func(*control.Server)) *control.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-question-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	server := control.New(control.Options{Path: socket, Logger: logr.Discard()})
	add(server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; os.RemoveAll(dir) })
	testkit.Until(t, func() bool { _, err := os.Stat(socket); return err == nil })
	client := control.NewClient(socket)
	t.Cleanup(client.Close)
	return client
}

// The fields of a query have the same names as flags, as JSON and in a URL.
func TestFieldsHaveOneName(t *testing.T) {
	wantNames(t, Explain)
	wantNames(t, Status)
	wantNames(t, Services)
	wantNames(t, Events)
}

func wantNames[Query, Reply any](t *testing.T, q *Question[Query, Reply]) {
	t.Helper()
	var inJSON, flags []string
	of := reflect.TypeFor[Query]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		inJSON = append(inJSON, name)
	}
	fields := q.Fields(new(Query))
	fields.VisitAll(func(f *pflag.Flag) {
		if f.Deprecated == "" {
			flags = append(flags, f.Name)
		}
	})
	slices.Sort(inJSON)
	slices.Sort(flags)
	if diff := cmp.Diff(inJSON, flags); diff != "" {
		t.Errorf("%s: JSON and flags differ (-JSON +flags):\n%s", q.Name, diff)
	}
	if q.Argument != "" && fields.Lookup(q.Argument) == nil {
		t.Errorf("%s has no field %s", q.Name, q.Argument)
	}
	reply, err := json.Marshal(new(Reply))
	if err != nil || !strings.Contains(string(reply), `"`+q.Field+`":`) {
		t.Errorf("%s: a reply has no field %s: %s, %v", q.Name, q.Field, reply, err)
	}
}

// A query arrives as it was asked: posted, in the URL as commands of the version before ask, and as
// proxies of that version understand it.
func TestQueriesArrive(t *testing.T) {
	arrives(t, Explain, &explain.Question{To: "default/web", From: "10.0.0.1", Interface: "eth0", Try: true, NetNS: "pod"},
		"from=10.0.0.1&interface=eth0&netns=pod&to=default%2Fweb&try=true")
	arrives(t, Explain, &explain.Question{To: "default/web"}, "from=&interface=&netns=&to=default%2Fweb&try=false")
	arrives(t, Status, &None{}, "")
	arrives(t, Services, &listing.Query{Namespace: "a", Failing: true, Top: true, Interval: metav1.Duration{Duration: 3 * time.Second}, Limit: 7},
		"failing=true&most=7&namespace=a&over=3s&top=true")
	arrives(t, Services, &listing.Query{}, "")
	arrives(t, Events, &history.Query{After: 1 << 60, Namespace: "a", Service: "a/b", Last: 3}, "after=1152921504606846976&last=3&namespace=a&service=a%2Fb")
	arrives(t, Events, &history.Query{}, "")
}

func arrives[Query, Reply any](t *testing.T, q *Question[Query, Reply], want *Query, inURL string) {
	t.Helper()
	t.Run(q.Name+"?"+inURL, func(t *testing.T) {
		var posted *Query
		server := func(s *control.Server) {
			q.Serve(s, func(_ context.Context, query *Query) (*Reply, error) {
				posted = query
				return new(Reply), nil
			})
		}
		if _, err := q.Ask(t.Context(), serving(t, server), want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, posted); diff != "" {
			t.Errorf("posted (-want +got):\n%s", diff)
		}
		values, err := url.ParseQuery(inURL)
		if err != nil {
			t.Fatal(err)
		}
		asked := new(Query)
		if err := q.parser()(values, asked); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("in a URL (-want +got):\n%s", diff)
		}
		// The version before.
		var older url.Values
		server = func(s *control.Server) {
			s.Handle("/v1/"+q.Name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if older = r.URL.Query(); r.Method != http.MethodGet {
					w.WriteHeader(http.StatusMethodNotAllowed)
					_, _ = w.Write([]byte(`{"error": "POST is not possible here, only GET"}`)) // the test notices
					return
				}
				_, _ = w.Write([]byte("{}")) // the test notices
			}))
		}
		if _, err := q.Ask(t.Context(), serving(t, server), want); err != nil {
			t.Fatal(err)
		}
		values.Set("interval", values.Get("over")) // which an older proxy ignores
		values.Set("limit", values.Get("most"))
		values.Del("over")
		values.Del("most")
		for name, value := range older {
			if values.Get(name) != value[0] {
				t.Errorf("an older proxy is asked with %s=%s, want %s", name, value[0], values.Get(name))
			}
			values.Del(name)
		}
		for name, value := range values {
			if value[0] != "" && value[0] != "false" {
				t.Errorf("an older proxy is asked without %s=%s", name, value[0])
			}
		}
	})
}

// What is wrong with a query is said where it is asked, and where it is answered.
func TestWrongQueries(t *testing.T) {
	wrong(t, Services, &listing.Query{Top: true, Interval: metav1.Duration{Duration: time.Hour}}, "over=1h", "use up to 20s")
	wrong(t, Services, nil, "most=many", "invalid argument")
	wrong(t, Services, nil, "all=true", "no such flag")
	wrong(t, Events, &history.Query{Service: "web"}, "service=web", "use NAMESPACE/NAME")
	wrong(t, Events, &history.Query{Last: -1}, "last=-1", "not a number of events")
}

func wrong[Query, Reply any](t *testing.T, q *Question[Query, Reply], query *Query, inURL, want string) {
	t.Helper()
	t.Run(q.Name+"?"+inURL, func(t *testing.T) {
		client := serving(t, func(s *control.Server) {
			q.Serve(s, func(context.Context, *Query) (*Reply, error) { return new(Reply), nil })
		})
		if query != nil {
			if _, err := q.Ask(t.Context(), client, query); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("asked: %v, want %q", err, want)
			}
			if err := client.Ask(t.Context(), q.page(), query, new(Reply)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("answered: %v, want %q", err, want)
			}
		}
		values, err := url.ParseQuery(inURL)
		if err != nil {
			t.Fatal(err)
		}
		asked := new(Query)
		if err = q.parser()(values, asked); err == nil {
			err = q.Validate(asked)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("in a URL: %v, want %q", err, want)
		}
	})
}
