package proxy

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/mode"
	"sluice/internal/observe/telemetry"
)

// EmptyMode returns what an empty mode means on this node. With manifests, or beside another
// proxy, there is no earlier kube-proxy to be compatible with.
func EmptyMode(manifests string, f *config.Flags) v1alpha1.ProxyMode {
	return v1alpha1.ProxyMode(mode.Default(manifests != "" || f.ServiceProxyName != "").Name)
}

// errNoModeWorks means that no mode was chosen, and that none works.
var errNoModeWorks = errors.New("no mode is set, and none works here")

// chooseDataplane opens the dataplane of the mode. If no mode is set and upstream's
// default does not work, it falls back to the preferred mode. Reason is why this
// mode was selected, empty if it was chosen.
func (p *proxy) chooseDataplane(ctx context.Context, open func(dataplane.Mode) (dataplane.Dataplane, error)) (reason string, err error) {
	first := p.settings.Mode
	p.dataplane, err = open(first)
	if p.settings.WrittenMode != "" || p.options.Sandbox {
		return "", err
	}
	if err == nil {
		return p.modeReason(mode.Upstream().Missing()), nil
	}
	var busy *dataplane.BusyError
	if first.Name == mode.Preferred().Name || ctx.Err() != nil || errors.As(err, &busy) {
		return "", err // busy is temporary, and no reason for another mode
	}
	unusable := err
	p.options.Flags.EmptyMode = v1alpha1.ProxyMode(mode.Preferred().Name)
	if p.settings, err = p.options.Settings(); err != nil {
		return "", err
	}
	p.settings.Report(p.logger)
	if p.dataplane, err = open(p.settings.Mode); err != nil {
		return "", fmt.Errorf("%w:\n%s: %w\n%s: %w", errNoModeWorks, first.Name, unusable, p.settings.Mode.Name, err)
	}
	return p.modeReason(unusable), nil
}

// modeReason returns why this mode was selected, though none was chosen. Unusable
// is why upstream's default does not work.
func (p *proxy) modeReason(unusable error) string {
	return ModeReason(p.settings, p.options.Manifests != "", unusable)
}

// ModeReason returns why a mode was selected, though none was chosen.
func ModeReason(s *config.Settings, manifests bool, unusable error) string {
	usual, preferred := mode.Upstream().Name, mode.Preferred().Name
	switch {
	case s.WrittenMode != "":
		return ""
	case usual == preferred:
		return fmt.Sprintf("no mode is set, and %s is the only one of this system", usual)
	case s.Mode.Name == usual:
		return fmt.Sprintf("no mode is set, which means %s where it is installed, as here; %s is the faster one: choose it by mode: %s, or stay by mode: %s",
			usual, preferred, preferred, usual)
	case s.ServiceProxyName != "":
		return fmt.Sprintf("no mode is set, which means %s with --service-proxy-name", preferred)
	case manifests:
		return fmt.Sprintf("no mode is set, which means %s with --manifests", preferred)
	}
	return fmt.Sprintf("no mode is set, which means %s where it can be used, and %s here: %v; stay by mode: %s, the faster one of the two",
		usual, preferred, unusable, preferred)
}

// reportMode logs the mode and why it was selected, if it was not chosen.
func (p *proxy) reportMode() {
	if p.reason == "" {
		return
	}
	p.logger.Info("The mode was not chosen", "mode", p.settings.Mode.Name, "reason", p.reason)
	if p.client != nil {
		p.recorder.Record(telemetry.DefaultMode(p.settings.Plan.NodeName, p.settings.Mode.Name, p.reason))
	}
}
