// Package mode lists the proxy modes. To add a mode, add its value to All of the
// systems that have it.
package mode

import (
	"slices"
	"strings"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/sandbox"
)

// Preferred returns the mode to use where the choice is free.
func Preferred() dataplane.Mode { return All[0] }

// Upstream returns the mode that upstream uses where none is chosen.
func Upstream() dataplane.Mode { return upstream }

// Sandbox returns the mode that does without the kernel's help. It is chosen by a flag
// of its own, and is not one of All where the kernel helps.
func Sandbox() dataplane.Mode { return sandbox.Mode }

// Default returns the mode for a node where none is chosen, as far as can be told
// without touching the kernel: upstream's, if it is installed. If it is free to
// choose, it is the preferred one.
func Default(free bool) dataplane.Mode {
	if free || Upstream().Missing() != nil {
		return Preferred()
	}
	return Upstream()
}

// Find returns the mode of that name, and whether there is one.
func Find(name string) (dataplane.Mode, bool) {
	if name == sandbox.Mode.Name {
		return sandbox.Mode, true
	}
	i := slices.IndexFunc(All, func(m dataplane.Mode) bool { return m.Name == name })
	if i < 0 {
		return dataplane.Mode{}, false
	}
	return All[i], true
}

// Names returns the names of all modes, for people.
func Names() string {
	names := make([]string, len(All))
	for i, m := range All {
		names[i] = m.Name
	}
	return strings.Join(names, ", ")
}
