package health

import (
	"fmt"
	"strings"

	"sluice/internal/printable"
)

// notReady returns why a rolling update should not go on, "" if it may: this process
// has programmed everything once, or found it in the kernel, and the kernel agrees. A
// proxy that was ready stays so while the API server is away, which is no fault of
// this version, and on a node that leaves.
func (p *Proxy) notReady() string {
	s := p.Status()
	began := !s.LastCommit.IsZero()
	failing := !s.FailingSince.IsZero() && (!began || overdue(&s, s.FailingSince, p.Clock))
	waiting, missing := p.Waiting(), ""
	if !began && !s.Synced {
		missing = p.Source()
	}
	switch {
	case waiting != "":
		return waiting
	case failing:
		return fmt.Sprintf("the kernel has not taken the rules for %s: %v", printable.Duration(p.Clock.Since(s.FailingSince)), s.LastError)
	case overdue(&s, s.PendingSince, p.Clock):
		return fmt.Sprintf("a change has waited for %s to get into the kernel", printable.Duration(p.Clock.Since(s.PendingSince)))
	case began:
		return ""
	case s.Synced:
		return "the kernel is being programmed for the first time"
	case missing != "":
		return "nothing is programmed yet: " + missing
	}
	return "nothing is programmed yet: waiting for " + strings.Join(s.WaitingFor, ", ")
}
