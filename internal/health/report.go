package health

import (
	"encoding/json"
	"net/http"
	"time"

	"sluice/internal/engine"
	"sluice/internal/model"
)

// report is what the proxy says of itself. Its form is an interface that
// cloud providers, kubelets and dashboards rely on.
type report struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // only on /healthz
	Healthy      bool                    `json:"healthy"`                // whatever becomes of the node
	Status       map[string]familyReport `json:"status,omitempty"`
	Reason       string                  `json:"reason,omitempty"` // for which the proxy does nothing yet
}

type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// newReport tells of all families alike: one commit programs them all. Before the
// first there is nothing to tell of them.
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

// write answers with the report. Who reads a good one takes lastUpdated for the
// time at which all was well: that is now, even if nothing has changed for long.
func (r report) write(w http.ResponseWriter, good bool) int {
	status := http.StatusServiceUnavailable
	if good {
		status = http.StatusOK
		r.LastUpdated = r.CurrentTime
	}
	body, err := json.Marshal(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who went away does not want the answer
	return status
}
