package command

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/telemetry"
)

// emptyMode is what an empty mode means on this node, as far as can be told
// without touching the kernel: as upstream iptables, where it is installed. Who
// follows manifests never had another kube-proxy, and gets the faster mode.
func emptyMode(manifests string) v1alpha1.ProxyMode {
	if manifests != "" || iptables.Installed() != nil {
		return config.ModeNFTables
	}
	return config.ModeIPTables
}

// errNoModeWorks says that no mode was chosen, and that there is none to choose.
var errNoModeWorks = errors.New("no mode is set, and none works here")

// chooseKernel opens the dataplane of the mode. Where nobody chose one, and
// iptables cannot be used, nftables takes its place. Reason says why it is this
// one, empty if it was chosen.
func (p *proxy) chooseKernel(ctx context.Context, open func(v1alpha1.ProxyMode) (dataplane.Dataplane, error)) (reason string, err error) {
	p.kernel, err = open(p.settings.Mode)
	if p.settings.WrittenMode != "" {
		return "", err
	}
	if err == nil {
		return p.reason(iptables.Installed()), nil
	}
	if p.settings.Mode != config.ModeIPTables || ctx.Err() != nil || errors.Is(err, iptables.ErrLocked) {
		return "", err // a lock is held for a while only, and a mode is for long
	}
	unusable := err
	p.options.flags.EmptyMode = config.ModeNFTables
	if p.settings, err = p.options.settings(); err != nil {
		return "", err
	}
	p.settings.Report(p.logger)
	if p.kernel, err = open(p.settings.Mode); err != nil {
		return "", fmt.Errorf("%w:\niptables: %w\nnftables: %w", errNoModeWorks, unusable, err)
	}
	return p.reason(unusable), nil
}

// reason says why the mode is this one, though nobody chose it. Unusable is what
// is in the way of iptables.
func (p *proxy) reason(unusable error) string {
	switch {
	case p.settings.WrittenMode != "":
		return ""
	case p.settings.Mode == config.ModeIPTables:
		return "no mode is set, which means iptables where it is installed, as here; nftables is the faster one: choose it by mode: nftables, or stay by mode: iptables"
	case p.options.manifests != "":
		return "no mode is set, which means nftables with --manifests"
	}
	return fmt.Sprintf("no mode is set, which means iptables where it can be used, and nftables here: %v; stay by mode: nftables, the faster one of the two", unusable)
}

// tellMode says which mode there is and why, if nobody chose it.
func (p *proxy) tellMode() {
	if p.modeReason == "" {
		return
	}
	p.logger.Info("The mode was not chosen", "mode", p.settings.Mode, "reason", p.modeReason)
	if p.client != nil {
		p.recorder.Record(telemetry.DefaultMode(p.settings.Plan.NodeName, string(p.settings.Mode), p.modeReason))
	}
}
