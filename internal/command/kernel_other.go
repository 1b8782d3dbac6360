//go:build !linux

package command

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"sluice/internal/answer/web"
	"sluice/internal/config"
)

func newUpkeep(*proxy) upkeep { return withoutKernel{} }

// initialize has nothing to do: there is only the sandbox, which needs no privileges.
func initialize(logr.Logger, *config.Settings) {}

func cleanup(context.Context, logr.Logger, bool) error {
	return errors.New("there is nothing to clean up: kube-proxy leaves the kernel of this system alone")
}

// countConnections returns nil: the kernel does not forward connections.
func (p *proxy) countConnections() web.CountFunc { return nil }
