package ipvs

import (
	"context"
	"errors"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
)

// Remove removes the table, the virtual services of this proxy and of upstream's ipvs
// mode, the routes to them, and upstream's link and sets. If a Dataplane is running, it
// leaves all but the table to Drain: connections depend on it, and the link and the sets
// identify the virtual services. With o.OwnOnly, upstream's stay.
func Remove(ctx context.Context, o dataplane.RemoveOptions) (err error) {
	if err := nftables.Remove(ctx, o); err != nil || o.Running != nil {
		return err
	}
	d, err := newDrainer(dataplane.DrainOptions{Logger: o.Logger})
	if err != nil {
		return err
	}
	d.ownOnly = o.OwnOnly
	defer func() { err = errors.Join(err, d.close()) }()
	if _, err := d.pass(ctx, true); err != nil {
		return err
	}
	return d.finish(ctx)
}
