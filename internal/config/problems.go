package config

import (
	"regexp"
	"slices"
	"strings"

	"sluice/internal/model"
)

// Errors are all errors of a configuration.
type Errors []model.Problem

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// notes collects what is found while a configuration is read and resolved.
type notes struct {
	errors   []model.Problem // what keeps the proxy from running
	warnings []model.Problem // what the administrator may not have meant
	asides   []model.Problem // what has no effect, or means more than it seems to
}

func (n *notes) fail(field, reason, remedy string) {
	n.errors = append(n.errors, problem(field, reason, remedy))
}

func (n *notes) warn(field, reason, remedy string) {
	n.warnings = append(n.warnings, problem(field, reason, remedy))
}

func (n *notes) note(field, reason, remedy string) {
	n.asides = append(n.asides, problem(field, reason, remedy))
}

// failIf fails if the field matters now, and otherwise only warns, because upstream
// accepts it.
func (n *notes) failIf(matters bool, field, reason, remedy string) {
	if matters {
		n.fail(field, reason, remedy)
		return
	}
	n.warn(field, reason+"; nothing uses it now", remedy)
}

// flagName matches a flag in a remedy.
var flagName = regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)

// inFile names fields in the remedies, in place of the flags that a file makes ineffective.
func inFile(s *Settings, err error) (*Settings, error) {
	if all, ok := err.(Errors); ok {
		return nil, Errors(nameFields(all))
	}
	if err != nil {
		return nil, err
	}
	s.Warnings, s.Notes = nameFields(s.Warnings), nameFields(s.Notes)
	return s, nil
}

func nameFields(problems []model.Problem) []model.Problem {
	for i := range problems {
		p := &problems[i]
		p.Remedy = flagName.ReplaceAllStringFunc(p.Remedy, func(flag string) string {
			if name := fieldOf(flag[2:], p.Field); name != "" {
				return name
			}
			return flag
		})
	}
	return problems
}

// fieldOf returns the field that a flag sets: of several, the one that is asked about, if it
// is among them. It is empty for a flag that counts beside a file.
func fieldOf(flag, asked string) string {
	for _, s := range settings {
		switch {
		case s.flag != flag || s.wins:
		case slices.Contains(s.also, asked):
			return asked
		default:
			return s.path
		}
	}
	return ""
}

func problem(field, reason, remedy string) model.Problem {
	return model.Problem{Object: model.Object{Kind: kind}, Field: field, Reason: reason, Remedy: remedy}
}
