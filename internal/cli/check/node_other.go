//go:build !linux && !windows

package check

import (
	"context"

	"sluice/internal/plan"
)

func lacksIPv6() bool { return false }

func (r *Report) checkNode(context.Context, *Options, *plan.Desired) {
	r.add(Note, "node", "run it on the node", "this machine runs neither Linux nor Windows: only the configuration and the Services are checked")
}
