package config

import (
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/component-base/featuregate"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Settings is a valid configuration, in the values that the program works with.
type Settings struct {
	// Configuration is what the Settings were resolved from, with empty values
	// replaced by what they mean.
	Configuration *Configuration
	// Features are the feature gates.
	Features featuregate.MutableVersionedFeatureGate

	Mode dataplane.Mode
	// WrittenMode is the mode as the administrator wrote it, which may be empty.
	WrittenMode v1alpha1.ProxyMode
	// Plan lacks the NodeName, which is not known from a configuration alone.
	Plan plan.Config
	// MinSyncPeriod is the minimum time between two updates of the kernel, 0 for none.
	MinSyncPeriod time.Duration
	// SyncPeriod is how often the kernel is compared with the desired state.
	SyncPeriod time.Duration

	// ServiceProxyName is the label of the Services that are served, if it is not empty: those
	// without a label are not, unless AllServices.
	ServiceProxyName string
	AllServices      bool

	// Own are the values of the file for settings that upstream's kube-proxy does not have, by field.
	Own map[string]string

	// FlowTable is which connections flow tables of the kernel forward.
	FlowTable dataplane.FlowTable

	// HostnameOverride is the name of the node, empty for the host name.
	HostnameOverride string

	Serving     Serving
	Client      Client
	Conntrack   sysctl.Conntrack
	OOMScoreAdj int
	dataplane.ModeSettings

	// Warnings are what the administrator may not have intended.
	Warnings []model.Problem
	// Notes are what has no effect, or means more than it seems to.
	Notes []model.Problem
}

// Report logs the warnings and, at a higher verbosity, the notes.
func (s *Settings) Report(logger logr.Logger) {
	for _, w := range s.Warnings {
		logger.Error(nil, "Warning: "+w.String())
	}
	for _, note := range s.Notes {
		logger.V(1).Info("Note: " + note.String())
	}
}

// Serving configures the HTTP servers.
type Serving struct {
	// Health and Metrics are their addresses, invalid for no such server.
	Health, Metrics netip.AddrPort
	// HardFail makes it fatal if they cannot listen.
	HardFail bool
	// Profiling serves profiles on the metrics server.
	Profiling bool
	// ShowHiddenMetrics shows the metrics that the previous version hid.
	ShowHiddenMetrics bool
}

// Client configures the client of the API server.
type Client struct {
	Connection   componentconfig.ClientConnectionConfiguration
	Master       string        // address that takes the place of the kubeconfig's
	ResyncPeriod time.Duration // how often kinds that the server lacks are asked for again
}

// Settings resolves the flags and the configuration file.
func (f *Flags) Settings() (*Settings, error) {
	c, problems, err := f.Load()
	return f.resolve(c, problems, err, f.ownValues, f.ConfigFile != "")
}

// SettingsWith resolves the flags with a configuration file of that content.
func (f *Flags) SettingsWith(file []byte) (*Settings, error) {
	own := f.ownOf(file)
	later, err := f.withOwn(own)
	if err != nil {
		return nil, err
	}
	c, problems, err := later.with(later.decode(file))
	return later.resolve(c, problems, err, own, true)
}

// Resolve resolves a configuration that Load returned, in the words of who wrote it.
func (f *Flags) Resolve(c *Configuration, emptyMode v1alpha1.ProxyMode) (*Settings, error) {
	s, err := Resolve(c, emptyMode)
	if err == nil {
		err = f.own(s, f.ownValues)
	}
	if f.ConfigFile != "" {
		return inFile(s, err)
	}
	return s, err
}

// resolve resolves what was read, with the values of a file for settings that upstream's kube-proxy does not have.
func (f *Flags) resolve(c *Configuration, problems []model.Problem, err error, own map[string]string, ofFile bool) (*Settings, error) {
	if err != nil {
		return nil, err
	}
	s, err := Resolve(c, f.EmptyMode)
	if err == nil {
		err = f.own(s, own)
	}
	if ofFile {
		s, err = inFile(s, err)
	}
	if err != nil {
		return nil, err
	}
	s.Client.Master = f.Master
	s.Warnings = append(problems, s.Warnings...)
	return s, nil
}

// own applies the flags that have no field of upstream's to what Resolve returns, with the values of a file for them.
func (f *Flags) own(s *Settings, values map[string]string) error {
	s.Own = values
	var n notes
	f.name(s, &n)
	s.Plan.ExternalIPRanges = f.externalIPRanges(&n)
	f.rejectLocalhost(s, &n)
	s.Uncounted = !f.ServiceMetrics
	f.directReturn(s, &n)
	f.flowTable(s, &n)
	s.Notes = append(s.Notes, n.asides...)
	if len(n.errors) > 0 {
		return Errors(n.errors)
	}
	return nil
}

// Resolve resolves a configuration. An empty mode means emptyMode, or the preferred
// mode if that is empty too. The configuration is not changed. The error is an
// Errors with everything that is wrong.
func Resolve(c *Configuration, emptyMode v1alpha1.ProxyMode) (*Settings, error) {
	var n notes
	c = c.DeepCopy()
	written := c.Mode
	defaultPointers(c)
	empty, ok := mode.Find(string(emptyMode))
	if !ok {
		empty = mode.Preferred()
	}
	complete(c, empty)
	m := modeOf(c, &n)
	s := &Settings{
		Configuration:    c,
		WrittenMode:      written,
		Features:         features(c.FeatureGates, &n),
		Mode:             m,
		HostnameOverride: hostname(c.HostnameOverride, &n),
		Serving:          serving(c, &n),
		Client:           client(c, &n),
		Conntrack:        conntrack(c, &n),
		OOMScoreAdj:      oomScoreAdj(*c.OOMScoreAdj, &n),
	}
	checkModeGate(m, s.Features, &n)
	s.Plan = planConfig(c, m, s.Features, &n)
	s.Plan.NodeIP = nodeIP(c.BindAddress, &n)
	s.SyncPeriod, s.MinSyncPeriod = periods(c, written, m, &n)
	s.IPVS = ipvsSettings(c, m, &n)
	s.Ports = portRange(c, m, &n)
	s.Windows = windows(c, m, s, &n)
	checkLogging(c, s.Features, &n)
	noteUnused(c, m, &n)
	if !m.Configuration.PortRange {
		c.PortRange = "" // it is not in force
	}
	s.Warnings, s.Notes = n.warnings, n.asides
	if len(n.errors) > 0 {
		return nil, Errors(n.errors)
	}
	return s, nil
}

func hostname(override string, n *notes) string {
	name := nodeName(override)
	if name == "" && override != "" {
		n.fail("hostnameOverride", "the name of this node is blank",
			"set --hostname-override to the name of its Node object, or leave it out for the machine's host name")
	}
	return name
}

func nodeName(name string) string { return strings.ToLower(strings.TrimSpace(name)) }
