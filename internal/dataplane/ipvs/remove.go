package ipvs

import (
	"context"
	"errors"

	"sluice/internal/dataplane"
)

// Remove removes the virtual services of this proxy and of upstream's ipvs mode, the
// routes to them, and upstream's link and sets. If a Dataplane is running, it leaves all
// of that to Drain: connections depend on it, and the link and the sets identify the
// virtual services.
func Remove(ctx context.Context, o dataplane.RemoveOptions) (err error) {
	if o.Running != nil {
		return nil
	}
	d, err := newDrainer(dataplane.DrainOptions{Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if _, err := d.pass(ctx, true); err != nil {
		return err
	}
	return d.finish(ctx)
}
