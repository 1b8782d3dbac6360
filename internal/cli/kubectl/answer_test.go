package kubectl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/output"
	"sluice/internal/answer/status"
	"sluice/internal/base/release"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
)

func from[Reply any](t *testing.T, node string, value *Reply) *answer[Reply] {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return &answer[Reply]{pod: pod{node: node, name: "sluice-" + node}, text: text, reply: value}
}

func silent[Reply any](node string) *answer[Reply] {
	return &answer[Reply]{pod: pod{node: node, name: "sluice-" + node}, err: errors.New("no proxy answers\x1b[2J")}
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in\n%s", w, got)
		}
	}
}

func TestNodesAreGroupedByAnswer(t *testing.T) {
	served := &explain.Reply{Flows: true, Answers: []explain.Answer{{Verdict: verdict.Works, Flows: true, Summary: "reaches the only endpoint"}}}
	dropped := &explain.Reply{Answers: []explain.Answer{{Verdict: verdict.Refused, Fate: "dropped", Summary: "none here", Problems: []explain.Advice{{Text: "it is Local", Remedy: "make it Cluster"}}}}}
	var out strings.Builder
	answers := []*answer[explain.Reply]{from(t, "a", dropped), from(t, "b", served), from(t, "c", served), silent[explain.Reply]("d")}
	if err := writeExplanations(&out, answers); err != nil {
		t.Fatal(err)
	}
	wantText(t, out.String(), "2 nodes (2 of 4): b, c\n  WORKS: reaches the only endpoint\n",
		"1 node (1 of 4): a\n  REFUSED (dropped): none here\n  problem      it is Local\n  what to do   make it Cluster\n",
		"1 node (1 of 4): d\n  NO ANSWER: no proxy answers\\x1b[2J\n")
	if !strings.HasPrefix(out.String(), "2 nodes") {
		t.Error("the answer of most nodes is not the first")
	}
	if code := worst(answers); code != noAnswer {
		t.Errorf("exit code %d", code)
	}
}

func TestServicesOfAllNodes(t *testing.T) {
	list := func(word verdict.Word, perSecond float64) *listing.List {
		return &listing.List{Services: []listing.Service{
			{Namespace: "default", Name: "web", Service: verdict.Service{Word: word}, Endpoints: 2, Connections: perSecond},
			{Namespace: "default", Name: "busy", Service: verdict.Service{Word: verdict.Works}, Endpoints: 1, Connections: 100},
		}}
	}
	answers := []*answer[listing.List]{from(t, "a", list(verdict.Works, 1)), from(t, "b", list(verdict.NoAnswer, 2)), silent[listing.List]("c")}
	var out strings.Builder
	bad, err := writeServices(&out, answers, false, true)
	if err != nil || bad != 1 {
		t.Errorf("%d fail, %v", bad, err)
	}
	wantText(t, out.String(), "default    busy  1          2      200.0   0.0        -\n", "default    web   2          2      3.0     0.0        b: does not answer\n", "c: NO ANSWER: ")
	if strings.Index(out.String(), "busy") > strings.Index(out.String(), "web") {
		t.Error("the busiest is not the first")
	}
	out.Reset()
	if _, err := writeServices(&out, answers, true, false); err != nil || strings.Contains(out.String(), "busy") {
		t.Errorf("%v, of those that fail:\n%s", err, out.String())
	}
}

func TestStatusTable(t *testing.T) {
	var out strings.Builder
	if err := writeStatus(&out, []*answer[status.Report]{
		from(t, "a", &status.Report{Proxy: verdict.Proxy{Word: verdict.Serving}, Mode: "nftables", Services: 7, ByVerdict: map[verdict.Word]int{verdict.Refused: 2, verdict.Works: 5}}),
		from(t, "b", &status.Report{Proxy: verdict.Proxy{Word: verdict.ServingThePast}, Mode: "nftables"}), silent[status.Report]("d"),
	}); err != nil {
		t.Fatal(err)
	}
	wantText(t, out.String(), "a     serving  ", " 7         2       0 ", "b     SERVING THE PAST ", `d     NO ANSWER: no proxy answers\x1b[2J`)
}

// Programs get the answers of all nodes, as JSON or YAML, and the plugin's version.
func TestFormats(t *testing.T) {
	answers := []*answer[status.Report]{{pod: pod{node: "n1", name: "p1"}, text: []byte(`{"a": 1}`)}, {pod: pod{node: "n2", name: "p2"}, err: errors.New("away"), code: 2}}
	for format, want := range map[string]string{
		"yaml": "nodes:\n- answer:\n    a: 1\n  exitCode: 0\n  node: n1\n  pod: p1\n- error: away\n  exitCode: 2\n  node: n2\n  pod: p2\n",
		"json": `"answer": {`,
	} {
		var f output.Format
		if err := f.Set(format); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.Write(&out, listed(answers), nil); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	var out, failed bytes.Buffer
	if code := Main([]string{"version", "-o", "json"}, nil, &out, &failed); code != 0 || !strings.Contains(out.String(), `"sluice": "`+release.Version()+`"`) {
		t.Errorf("%d: %s%s", code, out.String(), failed.String())
	}
}

// Events that are followed name their node, for programs too.
func TestFollowedEventsNameTheirNode(t *testing.T) {
	e := &nodeEvent{Node: "n1", Event: history.Event{Service: "default/web"}}
	for format, want := range map[string]string{"json": `{"node":"n1",`, "yaml": "\nnode: n1\n", "text": "n1               default/web"} {
		var f output.Format
		if err := f.Set(format); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.WriteOne(&out, e, e.line()); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "default/web") {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}
