package config

import (
	"errors"
	"fmt"
	"time"

	"sluice/internal/model"
)

// FileState is what an administrator should know about the configuration file of a
// running proxy.
type FileState struct {
	Path string
	// Refused is why the file as it is now is not used, since when. What it said
	// before stays in force.
	Refused []model.Problem
	Since   time.Time
	// Warnings are those of the file, such as unknown fields.
	Warnings []model.Problem
	// Restart are the changes that wait for a restart, and Blocked is why all of them do.
	Restart []Change
	Blocked []model.Problem
}

// problemsIn returns the problems that an error consists of.
func problemsIn(err error) []model.Problem {
	var list Errors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &list):
		return list
	}
	return []model.Problem{problem("", err.Error(), "correct the file, or put back the one before")}
}

// Advisories returns what is wrong with the file, each problem with its remedy.
func (s *FileState) Advisories() []model.Problem {
	var out []model.Problem
	for _, p := range s.Refused {
		p.Reason = fmt.Sprintf("%s; since %s the file is refused, and what it said before stays in force", p.Reason, s.Since.UTC().Format(time.DateTime+" UTC"))
		out = append(out, s.named(p))
	}
	for _, p := range s.Warnings {
		out = append(out, s.named(p))
	}
	return out
}

// Waiting returns what waits for a restart of the proxy.
func (s *FileState) Waiting() []model.Problem {
	var out []model.Problem
	for _, p := range s.Blocked {
		p.Reason = "no change in the file is applied before a restart, because it is invalid in the current mode: " + p.Reason
		p.Remedy = "restart the proxy"
		out = append(out, s.named(p))
	}
	for _, c := range s.Restart {
		out = append(out, s.named(problem(c.Field, fmt.Sprintf("it waits for a restart to change from %s to %s: %s", c.Old, c.New, c.Restart),
			"restart the proxy, or undo the change")))
	}
	return out
}

// named returns a problem with the file as its object.
func (s *FileState) named(p model.Problem) model.Problem {
	if s.Path != "" {
		p.Object = model.Object{Kind: "Configuration file", Name: s.Path}
	}
	return p
}
