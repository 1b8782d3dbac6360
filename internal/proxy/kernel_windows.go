package proxy

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"sluice/internal/answer/web"
	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/mode"
	"sluice/internal/model"
)

// newHostSetup returns what a mode needs besides its dataplane: nothing but to know which families
// there are.
func newHostSetup(p *proxy) hostSetup {
	if c, ok := p.dataplane.(dataplane.FamilyChecker); ok {
		return hostNetworking{families: c}
	}
	return withoutKernel{}
}

// hostNetworking is the host setup of a mode that programs the Host Networking Service.
type hostNetworking struct {
	withoutKernel
	families dataplane.FamilyChecker
}

func (h hostNetworking) lacksIPv6(ctx context.Context) string {
	if err := h.families.CheckFamily(ctx, model.IPv6); err != nil {
		return err.Error()
	}
	return ""
}

// Initialize has nothing to do: no setting of Windows needs more privileges than serving does.
func Initialize(logr.Logger, *config.Settings) {}

// Cleanup removes what this proxy left, in all modes. What upstream's has cannot be told from what
// other programs have.
func Cleanup(ctx context.Context, logger logr.Logger, _ bool, instance string) (err error) {
	for _, m := range mode.All {
		if m.Remove != nil {
			err = errors.Join(err, m.Remove(ctx, dataplane.RemoveOptions{Logger: logger, Instance: instance, OwnOnly: true}))
		}
	}
	if err == nil {
		logger.Info("Nothing of this proxy is left")
	}
	return err
}

// countConnections returns nil: Windows does not tell which connections there are to endpoints.
func (p *proxy) countConnections() web.CountFunc { return nil }
