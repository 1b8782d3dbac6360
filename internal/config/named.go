package config

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/kernel/sysctl"
	"sluice/internal/mode"
)

// The ports of a proxy that serves only labelled Services, beside one with the usual ports.
const (
	namedHealthPort  = 10266
	namedMetricsPort = 10269
)

// beside reports whether the proxy serves labelled Services only: another one serves the others.
func (f *Flags) beside() bool { return f.ServiceProxyName != "" && !f.AllServices }

// ports are those of the servers where none are set.
func (f *Flags) ports() servers {
	if f.beside() {
		return servers{namedHealthPort, namedMetricsPort}
	}
	return usualPorts
}

// name applies the name of the proxy to settings.
func (f *Flags) name(s *Settings, n *notes) {
	s.ServiceProxyName, s.AllServices = f.ServiceProxyName, f.AllServices
	if f.AllServices && f.ServiceProxyName == "" {
		n.fail("", "--all-services says nothing without --service-proxy-name", "leave it out: all Services without the label are served")
	}
	if f.ServiceProxyName != "" {
		for _, why := range validation.IsValidLabelValue(f.ServiceProxyName) {
			n.fail("", fmt.Sprintf("--service-proxy-name: no Service can be labelled %q: %s", f.ServiceProxyName, why),
				"use the value that the label service.kubernetes.io/service-proxy-name of your Services has, such as sluice")
		}
	}
	if f.beside() {
		if !s.Mode.Named {
			n.fail(modePath, fmt.Sprintf("--service-proxy-name: in %s mode a proxy cannot serve a node beside another one, because what it makes in the kernel has the names of upstream's", s.Mode.Name),
				"set --proxy-mode to "+strings.Join(namedModes(), " or "))
		}
		s.Instance = f.ServiceProxyName
		s.Conntrack = sysctl.Conntrack{} // the node's settings are the other proxy's
	}
}

// namedModes are the modes in which a proxy can serve a node beside others.
func namedModes() (names []string) {
	for _, m := range mode.All {
		if m.Named {
			names = append(names, m.Name)
		}
	}
	return names
}
