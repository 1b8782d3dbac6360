//go:build !windows

package cli

import "context"

// underServiceManager runs the proxy: only Windows has the manager.
func underServiceManager(ctx context.Context, run func(context.Context) error) error { return run(ctx) }
