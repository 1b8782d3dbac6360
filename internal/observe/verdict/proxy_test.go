package verdict_test

import (
	"errors"
	"testing"
	"time"

	"sluice/internal/engine"
	"sluice/internal/observe/verdict"
)

func TestVerdictOnTheProxy(t *testing.T) {
	const past = "; what was programmed before stays in force"
	serves := engine.Summary{Synced: true, LastCommit: noon, SyncPeriod: time.Minute}
	with := func(change func(*engine.Summary)) engine.Summary {
		s := serves
		change(&s)
		return s
	}
	away := verdict.Source{Away: "connection refused", Remedy: "start it", Since: noon}
	failing := func(s *engine.Summary) { s.FailingSince, s.LastError = noon, errors.New("no room") }
	tests := []struct {
		name  string
		facts verdict.Facts
		word  verdict.ProxyWord
		why   string
	}{
		{"it follows", verdict.Facts{Summary: serves}, verdict.Serving, ""},
		{"another proxy", verdict.Facts{Waiting: "waiting for process 7"}, verdict.NotServing, "waiting for process 7"},
		{"starting", verdict.Facts{Summary: engine.Summary{WaitingFor: []string{"host", "kubernetes"}}}, verdict.NotYet, "waiting for host, kubernetes"},
		{"not all sent", verdict.Facts{Summary: engine.Summary{WaitingFor: []string{"kubernetes"}}, Source: verdict.Source{Missing: "no Services yet"}}, verdict.NotYet, "no Services yet"},
		{"first commit", verdict.Facts{Summary: engine.Summary{Synced: true}}, verdict.NotYet, "the kernel is being programmed for the first time"},
		{"first commit on Windows", verdict.Facts{Summary: engine.Summary{Synced: true, System: "HNS"}}, verdict.NotYet, "HNS is being programmed for the first time"},
		{"never reached its source", verdict.Facts{Summary: engine.Summary{WaitingFor: []string{"kubernetes"}}, Source: away}, verdict.NotServing, "connection refused"},
		{"lost its source", verdict.Facts{Summary: serves, Source: away}, verdict.ServingThePast, "connection refused" + past},
		{"never programmed", verdict.Facts{Summary: with(func(s *engine.Summary) { failing(s); s.LastCommit = time.Time{} })}, verdict.NotServing, "the kernel cannot be programmed: no room"},
		{"cannot program", verdict.Facts{Summary: with(failing), Source: away}, verdict.ServingThePast, "the kernel cannot be programmed: no room" + past},
		{"a change takes a while", verdict.Facts{Summary: with(func(s *engine.Summary) { s.PendingSince = noon.Add(-time.Minute) })}, verdict.Serving, ""},
		{"a change takes too long", verdict.Facts{Summary: with(func(s *engine.Summary) { s.PendingSince = noon.Add(-3 * time.Minute) })}, verdict.ServingThePast, "the kernel has not followed for too long" + past},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.facts.Now = noon
			if got := verdict.OfProxy(tt.facts); got.Word != tt.word || got.Why != tt.why || got.Word.Ready() != !tt.facts.LastCommit.IsZero() {
				t.Errorf("%s (ready: %v), want %s: %s", got, got.Word.Ready(), tt.word, tt.why)
			}
		})
	}
}
