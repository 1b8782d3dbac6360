package status

import (
	"sluice/internal/base/printable"
	"sluice/internal/observe/verdict"
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

// Condition returns the condition of the proxy in the words of its verdict, and what is worst
// about its Services if it serves them.
func (r *Report) Condition() Condition {
	c := Condition{Good, printable.Sentence(r.Word.Text()), printable.Sentence(r.Why)}
	switch r.Word {
	case verdict.NotServing:
		c.Level = Bad
		return c
	case verdict.NotYet:
		c.Level = Busy
		return c
	case verdict.ServingThePast:
		c.Level = Fair
		if !r.FailingSince.IsZero() || !r.Healthy {
			c.Level = Bad
		}
		return c
	}
	switch f := r.Frontends; {
	case f.Failed > 0:
		c.Level, c.Text = Fair, "The kernel refused "+printable.Count(f.Failed, "frontend")+". All others work."
	case r.failing() > 0:
		c.Level, c.Text = Fair, printable.Count(r.failing(), "Service")+" whose clients get no answer."
	case r.Leaving != "":
		c.Level, c.Text = Fair, "Load balancers are told to send no new connections: "+r.Leaving+"."
	case f.Pending > 0:
		c.Level, c.Text = Busy, printable.Count(f.Pending, "frontend")+" on the way into the kernel."
	}
	return c
}

// failing counts the Services of which no client gets an answer.
func (r *Report) failing() int { return r.ByVerdict[verdict.NoAnswer] + r.ByVerdict[verdict.Refused] }

// BrokenServices counts the Services of which not all clients get an answer.
func (r *Report) BrokenServices() int { return r.failing() + r.ByVerdict[verdict.WorksForSome] }
