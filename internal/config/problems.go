package config

import (
	"strings"

	"sluice/internal/model"
)

const object = "KubeProxyConfiguration"

// Errors is everything that is wrong with a configuration.
type Errors []model.Problem

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// notes gathers what is found while a configuration is resolved.
type notes struct {
	errors, warnings []model.Problem
}

func (n *notes) fail(field, reason, remedy string) {
	n.errors = append(n.errors, model.Problem{Object: object, Field: field, Reason: reason, Remedy: remedy})
}

func (n *notes) warn(field, reason, remedy string) {
	n.warnings = append(n.warnings, model.Problem{Object: object, Field: field, Reason: reason, Remedy: remedy})
}
