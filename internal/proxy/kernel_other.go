//go:build !linux && !windows

package proxy

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"sluice/internal/answer/web"
	"sluice/internal/config"
)

func newHostSetup(*proxy) hostSetup { return withoutKernel{} }

// Initialize has nothing to do: there is only the sandbox, which needs no privileges.
func Initialize(logr.Logger, *config.Settings) {}

func Cleanup(context.Context, logr.Logger, bool, string) error {
	return errors.New("there is nothing to clean up: kube-proxy leaves the kernel of this system alone")
}

// countConnections returns nil: the kernel does not forward connections.
func (p *proxy) countConnections() web.CountFunc { return nil }
