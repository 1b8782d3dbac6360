//go:build !linux && !windows

package mode

import (
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/sandbox"
)

// All are the proxy modes, the preferred one first.
var All = []dataplane.Mode{sandbox.Mode}

var upstream = sandbox.Mode
