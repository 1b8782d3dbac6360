package prefetch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSameValues(t *testing.T) {
	tests := []struct {
		name  string
		in    []int
		take  int // then break
		want  []int
		ended bool // to its own end
	}{
		{"empty", nil, 9, nil, true},
		{"one", []int{1}, 9, []int{1}, true},
		{"all", []int{1, 2, 3, 4}, 9, []int{1, 2, 3, 4}, true},
		{"first only", []int{1, 2, 3, 4}, 1, []int{1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			made, ended := 0, false // no lock: seq runs only during the loop
			seq := func(yield func(int) bool) {
				for _, v := range tt.in {
					if made++; !yield(v) {
						return
					}
				}
				ended = true
			}
			for v := range Seq(seq) {
				if got = append(got, v); len(got) == tt.take {
					break
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if ended != tt.ended {
				t.Errorf("the sequence ran to its end: %v, want %v", ended, tt.ended)
			}
			if made > len(got)+1 {
				t.Errorf("%d values were made for %d", made, len(got))
			}
		})
	}
}

func TestRunsOneAhead(t *testing.T) {
	second := make(chan struct{})
	seq := func(yield func(int) bool) {
		if yield(1) {
			close(second)
			yield(2)
		}
	}
	for v := range Seq(seq) {
		if v == 1 {
			<-second // deadlocks if seq waits for the loop body
		}
	}
}
