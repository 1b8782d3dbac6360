package status

import (
	"fmt"
	"strings"
)

// Condition is how something is: a word for it and a sentence.
type Condition struct {
	Level      Level
	Word, Text string
}

// Level is how good a Condition is.
type Level string

// The levels.
const (
	Good Level = "good"
	Busy Level = "busy"
	Fair Level = "fair"
	Bad  Level = "bad"
)

// Condition returns the condition of the proxy, the worst if there are several.
func (r *Report) Condition() Condition {
	switch f := r.Frontends; {
	case !r.Synced:
		text := "Nothing is written before the sources are in sync."
		if len(r.WaitingFor) > 0 {
			text = "Waiting for " + strings.Join(r.WaitingFor, ", ") + ". " + text
		}
		return Condition{Busy, "Starting", text}
	case !r.FailingSince.IsZero():
		return Condition{Bad, "Failing", "The kernel cannot be programmed. It is tried again, and what was programmed before stays in force."}
	case !r.Healthy:
		return Condition{Bad, "Behind", "The kernel has not followed for too long."}
	case r.Commits == 0:
		return Condition{Busy, "Starting", "The kernel is programmed for the first time."}
	case f.Failed > 0:
		return Condition{Fair, fmt.Sprintf("%d refused", f.Failed), "The kernel refused some frontends. All others work."}
	case r.Leaving != "":
		return Condition{Fair, "Not eligible", "Load balancers are told to send no new connections: " + r.Leaving + "."}
	case f.Pending > 0:
		return Condition{Busy, "Programming", fmt.Sprintf("%d frontends are on their way into the kernel.", f.Pending)}
	}
	return Condition{Good, "In sync", "The kernel does what the Services ask for."}
}
