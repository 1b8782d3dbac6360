package ipvs

import (
	"context"

	"sluice/internal/dataplane"
)

func Remove(context.Context, dataplane.RemoveOptions) error { return nil }

func Drain(context.Context, dataplane.DrainOptions) error { return nil }
