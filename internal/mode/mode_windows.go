package mode

import (
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/kernelspace"
)

// All are the proxy modes.
var All = []dataplane.Mode{kernelspace.Mode}

var upstream = kernelspace.Mode
