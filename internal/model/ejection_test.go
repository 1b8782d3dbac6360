package model

import (
	"strings"
	"testing"
	"time"
)

func TestEjectionSaysWhenTheNextTrialIs(t *testing.T) {
	at := time.Date(2026, 11, 18, 12, 3, 19, 0, time.UTC)
	e := Ejection{Attempts: 3, Since: at.Add(-8 * time.Second), Until: at}
	for want, got := range map[string]string{
		"left out: 3 connections unanswered since 12:03:11 UTC, next trial at 12:03:19 UTC": e.Text(),
		"left out: 3 connections unanswered since 12:03:11 UTC, next trial in 8 s":          e.TextNow(at.Add(-7500 * time.Millisecond)),
		"left out: 3 connections unanswered since 12:03:11 UTC, next trial now":             e.TextNow(at),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if e.Refusing = true; !strings.Contains(e.Text(), "3 connections refused since") {
		t.Error(e.Text())
	}
}
