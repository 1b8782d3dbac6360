package kernelspace

import (
	"context"
	"errors"

	"sluice/internal/kernel/hns"
)

// remove deletes all that is ours, in any network, and nothing else.
func remove(ctx context.Context, c *hns.Client) (err error) {
	for _, k := range []hns.Kind{hns.LoadBalancers, hns.Endpoints} { // endpoints are in use before
		ids, e := c.IDs(k, nil)
		err = errors.Join(err, e)
		for _, id := range ids {
			if !id.IsOurs() {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err = errors.Join(err, c.Delete(k, id))
		}
	}
	return err
}
