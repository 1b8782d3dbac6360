package config

import (
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
	asides   []model.Problem // what has no effect
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

func problem(field, reason, remedy string) model.Problem {
	return model.Problem{Object: kind, Field: field, Reason: reason, Remedy: remedy}
}
