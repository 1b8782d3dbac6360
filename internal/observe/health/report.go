package health

import (
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
)

// report is the health of the proxy. Cloud providers, kubelets and dashboards
// rely on its form.
type report struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // only on /healthz
	Healthy      bool                    `json:"healthy"`                // regardless of NodeEligible
	Status       map[string]familyReport `json:"status,omitempty"`
	Reason       string                  `json:"reason,omitempty"` // why it is not ready, or waits
}

type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// newReport reports the same of all families: one commit programs them all.
// Before the first commit none is listed.
func newReport(s engine.Summary, families []model.Family, healthy bool, now time.Time) report {
	r := report{LastUpdated: s.LastCommit, CurrentTime: now, Healthy: healthy}
	if s.LastCommit.IsZero() {
		return r
	}
	r.Status = map[string]familyReport{}
	for _, family := range families {
		r.Status[family.String()] = familyReport{s.LastCommit, healthy}
	}
	return r
}

// write writes the response. Readers of a good one take lastUpdated for the
// last time at which the proxy was healthy: that is now, even if nothing has
// changed for long.
func (r report) write(w http.ResponseWriter, good bool) int {
	status := http.StatusServiceUnavailable
	if good {
		status = http.StatusOK
		r.LastUpdated = r.CurrentTime
	}
	body, err := json.Marshal(r)
	return writeJSON(w, status, body, err)
}

// notReady returns why neither new connections should come nor a rolling update go on, "" if
// they may: this process has programmed everything once, or found it in the kernel, and the
// kernel follows. A proxy that was ready stays so while the API server is away, which is no
// fault of this version, and on a node that leaves.
func (p *Proxy) notReady() string { return NotReady(p.Verdict(), p.Status(), p.Clock.Now()) }

// NotReady is what /readyz says of a proxy.
func NotReady(v verdict.Proxy, s engine.Summary, now time.Time) string {
	if v.Word.Ready() && !s.Behind(now) {
		return ""
	}
	return v.Why
}

// Programming returns a function that reports whether the kernel is up to date.
func Programming(status func() engine.Summary, c clock.PassiveClock) func() bool {
	return func() bool {
		s := status()
		return !s.Behind(c.Now())
	}
}
