package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"sluice/internal/model"
)

// Load returns the configuration of the flags, or of the configuration file if
// there is one. The problems are what it ignored.
func (f *Flags) Load() (*Configuration, []model.Problem, error) {
	if f.ConfigFile == "" {
		var n notes
		c := f.fromFlags(&n)
		return c, n.warnings, nil
	}
	if err := f.TakeOwn(); err != nil {
		return nil, nil, err
	}
	return f.with(f.read(f.ConfigFile))
}

// with applies the flags to the configuration of a file.
func (f *Flags) with(c *Configuration, problems []model.Problem, err error) (*Configuration, []model.Problem, error) {
	if err != nil {
		return nil, nil, err
	}
	var n notes
	split := c.Logging.Options
	if err := f.overrule(c, &n); err != nil {
		return nil, nil, err
	}
	f.setHostname(c)
	f.ignoreSplit(c, split, &n)
	return c, append(problems, n.warnings...), nil
}

// fromFlags applies the deprecated flags, except to a configuration that is only
// written: a file cannot say that there is no such server.
func (f *Flags) fromFlags(n *notes) *Configuration {
	c := f.Configuration.DeepCopy()
	f.setHostname(c)
	if f.beside() {
		if !f.set.Changed(flagOf("healthzBindAddress")) {
			c.HealthzBindAddress = ""
		}
		if !f.set.Changed(flagOf("metricsBindAddress")) {
			c.MetricsBindAddress = ""
		}
	}
	if f.WriteConfigTo != "" {
		defaultAddresses(c, f.ports())
		return c
	}
	ports := servers{f.healthPort, f.metricsPort}
	if !f.set.Changed(flagHealthPort) {
		ports.health = f.ports().health
	}
	if !f.set.Changed(flagMetricsPort) {
		ports.metrics = f.ports().metrics
	}
	health := f.deprecatedPort(flagHealthPort, c.HealthzBindAddress, ports.health, n)
	metrics := f.deprecatedPort(flagMetricsPort, c.MetricsBindAddress, ports.metrics, n)
	c.HealthzBindAddress, c.MetricsBindAddress = health, metrics
	defaultAddresses(c, f.ports())
	if f.healthPort == 0 {
		c.HealthzBindAddress = ""
	}
	if f.metricsPort == 0 {
		c.MetricsBindAddress = ""
	}
	return c
}

// deprecatedPort adds the port to an address without one. As upstream, the port of
// the flag does not replace another, not even a default.
func (f *Flags) deprecatedPort(name, address string, port int32, n *notes) string {
	out := withPort(address, port)
	if f.set.Changed(name) && port != 0 && out == address && address != "" {
		n.warn("", fmt.Sprintf("--%s is ignored because the address %s has a port already", name, address),
			"set the port with --healthz-bind-address and --metrics-bind-address")
	}
	return out
}

// overrule applies the flags that take precedence over a file, and warns about the
// others.
func (f *Flags) overrule(c *Configuration, n *notes) error {
	fromFile := c.Logging.VModule
	c.Logging.VModule = nil
	for _, s := range settings {
		flag := f.set.Lookup(s.flag)
		if s.flag == "" || !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if !s.wins && !slices.Contains(f.Overrides, s.flag) {
			n.warn(s.path, fmt.Sprintf("--%s is ignored because there is a configuration file", s.flag),
				"set the field in the file, and leave the flag out")
			continue
		}
		if value == "" && s.path == hostnamePath {
			continue
		}
		var one pflag.FlagSet
		s.addFlag(&one, c)
		if err := one.Set(s.flag, value); err != nil {
			return fmt.Errorf("apply --%s to the configuration file: %w", s.flag, err)
		}
	}
	// The first matching pattern wins, so those of the flag come first.
	c.Logging.VModule = append(c.Logging.VModule, fromFile...)
	for _, name := range []string{flagHealthPort, flagMetricsPort} {
		if f.set.Changed(name) {
			n.warn("", fmt.Sprintf("--%s is ignored because there is a configuration file", name), "leave the flag out")
		}
	}
	return nil
}

// setHostname applies --hostname-override, normalized as a Node's name. A blank one
// is left to be refused.
func (f *Flags) setHostname(c *Configuration) {
	if name := nodeName(f.Configuration.HostnameOverride); name != "" {
		c.HostnameOverride = name
	}
}

// ignoreSplit drops splitStream of a file if its gate is off. Upstream does not
// check it in a file, so there are such files in use. As a flag it is refused.
func (f *Flags) ignoreSplit(c *Configuration, inFile logsapi.FormatOptions, n *notes) {
	if features(c.FeatureGates, &notes{}).Enabled(logsapi.LoggingAlphaOptions) {
		return
	}
	for _, s := range []struct {
		flag, path string
		inFile     bool
		value      *bool
	}{
		{"log-text-split-stream", "logging.options.text.splitStream", inFile.Text.SplitStream, &c.Logging.Options.Text.SplitStream},
		{"log-json-split-stream", "logging.options.json.splitStream", inFile.JSON.SplitStream, &c.Logging.Options.JSON.SplitStream},
	} {
		if s.inFile && !f.set.Changed(s.flag) {
			*s.value = false
			n.warn(s.path, "it is ignored: feature gate LoggingAlphaOptions is off", "set the gate, or leave the field out")
		}
	}
}
