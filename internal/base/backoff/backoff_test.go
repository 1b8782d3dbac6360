package backoff

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/testkit"
)

const ms = time.Millisecond

func TestPausesGrowToALimit(t *testing.T) {
	tests := []struct {
		failures int
		want     time.Duration
	}{
		{0, First}, {1, 100 * ms}, {2, 200 * ms}, {3, 400 * ms}, {9, 25600 * ms}, {10, 30 * time.Second},
		{1000, 30 * time.Second},
	}
	for _, tt := range tests {
		if got := After(tt.failures); got != tt.want {
			t.Errorf("after %d failures: %s, want %s", tt.failures, got, tt.want)
		}
	}
}

func TestReasonIsNewOnce(t *testing.T) {
	type report struct {
		Pause time.Duration
		News  bool
	}
	now := time.Unix(1000, 0)
	var tries Tries
	var got []report
	for _, reason := range []string{"taken", "taken", "gone", "gone", "taken"} {
		pause, news := tries.Fail(errors.New(reason), now)
		got = append(got, report{pause, news})
	}
	want := []report{{100 * ms, true}, {200 * ms, false}, {400 * ms, true}, {800 * ms, false}, {1600 * ms, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if n := tries.Failures(); n != 5 {
		t.Errorf("%d failures, want 5", n)
	}
}

func TestNewReasonIsLogged(t *testing.T) {
	var journal testkit.Journal
	var tries Tries
	var news []bool
	for _, reason := range []string{"taken", "taken", "gone", "gone", "taken"} {
		news = append(news, tries.Log(journal.Logger(), errors.New(reason), time.Unix(1000, 0), "listen", "end the other program"))
	}
	if diff := cmp.Diff([]bool{true, false, true, false, true}, news); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	if lines := journal.With("Cannot listen"); len(lines) != 3 || !strings.Contains(lines[0], "end the other program") {
		t.Errorf("reports %q, want three with the remedy", lines)
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(1000, 0)
	var tries Tries
	if !tries.Due(now) {
		t.Error("the first try is not due at once")
	}
	tries.Fail(errors.New("taken"), now)
	for after, want := range map[time.Duration]bool{0: false, First - 1: false, First: true, time.Hour: true} {
		if got := tries.Due(now.Add(after)); got != want {
			t.Errorf("due %v after a failure: %v, want %v", after, got, want)
		}
	}
}

func TestSucceedResets(t *testing.T) {
	now := time.Unix(1000, 0)
	var tries Tries
	tries.Fail(errors.New("taken"), now)
	tries.Fail(errors.New("taken"), now)
	tries.Succeed()
	if !tries.Due(now) || tries.Failures() != 0 {
		t.Errorf("after a success: %+v", tries)
	}
	if pause, news := tries.Fail(errors.New("taken"), now); pause != First || !news {
		t.Errorf("the next failure: pause %v, news %v", pause, news)
	}
}
