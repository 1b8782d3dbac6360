package ipvs

import (
	"context"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/dataplane/nftables"
)

// Remove removes the table, the virtual services of this proxy and of upstream's ipvs
// mode, the routes to them, and upstream's link and sets. If a Dataplane is running, it
// leaves all but the table to Drain: connections depend on it, and the link and the sets
// identify the virtual services. With o.OwnOnly, upstream's stay.
func Remove(ctx context.Context, o dataplane.RemoveOptions) error {
	if err := nftables.Remove(ctx, o); err != nil || o.Running != nil {
		return err
	}
	return leftover.Remove(ctx, o.Logger, o.OwnOnly)
}
