//go:build linux

package direct

import (
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// TestPath follows a way to a node in seconds, at each of which an answer comes or not.
func TestPath(t *testing.T) {
	const (
		lost    = iota
		plain   // only with the node's own address
		foreign // and with a foreign one
	)
	begin := time.Now()
	for _, tt := range []struct {
		name    string
		answers []int // to the probes, the last one for ever
		another bool  // machine, after that
		after   time.Duration
		want    model.PathState
	}{
		{"at first", []int{lost}, false, 0, model.PathUnknown},
		{"answered", []int{foreign}, false, time.Second, model.PathProven},
		{"answered for long", []int{foreign}, false, time.Hour, model.PathProven},
		{"some are lost", []int{foreign, lost, lost, lost, foreign}, false, 70 * time.Second, model.PathProven},
		{"silent", []int{lost}, false, 10 * time.Second, model.PathSilent},
		{"silent for long", []int{lost}, false, time.Hour, model.PathSilent},
		{"filtered", []int{plain}, false, 10 * time.Second, model.PathFiltered},
		{"filtered for long", []int{plain}, false, time.Hour, model.PathFiltered},
		{"it dies", []int{foreign, foreign, lost}, false, 130 * time.Second, model.PathSilent},
		{"it comes back", []int{lost, lost, lost, lost, lost, foreign}, false, time.Minute, model.PathProven},
		{"another machine", []int{foreign}, true, time.Hour, model.PathUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &path{onLink: true, mac: dataplane.MAC{2}, due: begin}
			var proof dataplane.Proof
			sent, now := 0, begin
			for ; now.Sub(begin) < tt.after; now = now.Add(period) {
				p.answered(proof, now)
				if p.wantsProbe(now) {
					p.probed(now)
					switch tt.answers[min(sent, len(tt.answers)-1)] {
					case foreign:
						proof.Foreign = now
						fallthrough
					case plain:
						proof.Plain = now
					}
					sent++
				}
			}
			if tt.another {
				p.restart(now)
				p.answered(proof, now)
			}
			if got := p.state(now); got != tt.want || p.proven(now) != (tt.want == model.PathProven) {
				t.Errorf("after %d probes it is %v, want %v", sent, got, tt.want)
			}
			if most := 10 + int(tt.after/probePeriod); sent > most {
				t.Errorf("%d probes were sent in %v", sent, tt.after)
			}
		})
	}
	for _, p := range []*path{{onLink: false, mac: dataplane.MAC{2}}, {onLink: true}} {
		if p.wantsProbe(begin) || p.proven(begin) {
			t.Errorf("%+v is probed", p)
		}
	}
}
