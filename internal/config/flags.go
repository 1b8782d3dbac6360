package config

import (
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/dataplane"
)

// Flags is a command line.
type Flags struct {
	// Configuration is what the flags set. It is ignored if there is a ConfigFile.
	Configuration *Configuration
	// ConfigFile is the file that the configuration is read from.
	ConfigFile string
	// WriteConfigTo is the file to write the configuration to before exiting.
	WriteConfigTo string
	// Master is the address of the API server, if not the kubeconfig's.
	Master string
	// Cleanup asks to remove all rules from the kernel and exit.
	Cleanup bool
	// InitOnly asks to do what needs full privileges and exit.
	InitOnly bool

	// ServiceProxyName and AllServices say which Services are served, see Settings.
	ServiceProxyName string
	AllServices      bool

	// ExternalIPRanges are the ranges that external IPs of Services may be in; empty for all.
	ExternalIPRanges []string

	// RejectLocalhostNodePorts rejects packets to node ports on loopback addresses that are not served there.
	RejectLocalhostNodePorts bool

	// ServiceMetrics counts connections to each Service, and exports metrics of single Services.
	ServiceMetrics bool
	// DirectReturn is the device for direct return, "auto" for the one with the node's address, empty for none.
	DirectReturn string

	// FlowTable is which devices have a flow table. A running proxy follows the file.
	FlowTable string

	// EmptyMode is what an empty mode means on this node, "" for the preferred one. It
	// is not a flag: the caller knows the node.
	EmptyMode v1alpha1.ProxyMode
	// Overrides are flags that take precedence over a file besides those that always do.
	// They are not flags either: a command that is not the proxy may need them.
	Overrides []string

	// ownValues are those that TakeOwn found in the file, except for what the command line sets.
	ownValues map[string]string
	ownTaken  bool

	set                     *pflag.FlagSet
	healthPort, metricsPort int32
}

const (
	flagConfig           = "config"
	flagServiceProxyName = "service-proxy-name"
	flagAllServices      = "all-services"
	flagExternalIPRanges = "external-ip-ranges"
	flagRejectLocalhost  = "reject-localhost-nodeports"
	flagServiceMetrics   = "service-metrics"
	flagDirectReturn     = "direct-return"
	flagFlowTable        = "flow-table"
	// Deprecated flags of upstream.
	flagHealthPort  = "healthz-port"
	flagMetricsPort = "metrics-port"
)

// AddFlags adds all flags of upstream's kube-proxy except --version. Their values
// are in the result once they are parsed.
func AddFlags(fs *pflag.FlagSet) *Flags {
	f := &Flags{Configuration: New(), ServiceMetrics: true, set: fs, healthPort: healthPort, metricsPort: metricsPort}
	fs.StringVar(&f.ConfigFile, flagConfig, "",
		"File with the configuration. With it, other flags that set fields of the configuration are ignored, except --hostname-override and the flags for logging. The file is watched.")
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "",
		"Write the configuration of the other flags, with all defaults, to this file, and exit.")
	fs.BoolVar(&f.Cleanup, "cleanup", false,
		"Remove the rules of all kube-proxies, this one and upstream's, in any mode, and exit.")
	fs.BoolVar(&f.InitOnly, "init-only", false,
		"Do what needs full root privileges, and exit. The proxy can then be run with CAP_NET_ADMIN alone.")
	fs.StringVar(&f.Master, "master", "",
		"Address of the API server, instead of the kubeconfig's.")
	for _, s := range settings {
		s.addFlag(fs, f.Configuration)
	}
	f.addDeprecated(fs)
	addIgnored(fs)
	return f
}

// AddOwn adds the flags that upstream's kube-proxy does not have.
func (f *Flags) AddOwn(fs *pflag.FlagSet) {
	fs.StringVar(&f.ServiceProxyName, flagServiceProxyName, "",
		"Serve only Services whose label service.kubernetes.io/service-proxy-name has this value, beside another kube-proxy that serves the others. In modes "+strings.Join(namedModes(), " and ")+".")
	fs.BoolVar(&f.AllServices, flagAllServices, false,
		"With --service-proxy-name, serve also the Services without the label, as the only kube-proxy of the node.")
	fs.StringSliceVar(&f.ExternalIPRanges, flagExternalIPRanges, nil,
		"Ranges of addresses, such as 198.51.100.0/24. External IPs of Services that are in none of them are not served, and reported. Empty for all.")
	fs.BoolVar(&f.RejectLocalhostNodePorts, flagRejectLocalhost, false,
		"In nftables mode, count packets to node ports on loopback addresses that are not served there, and reject them. With the feature gate "+string(LocalhostNodePorts)+" they are counted only.")
	fs.BoolVar(&f.ServiceMetrics, flagServiceMetrics, true,
		"Count connections to each Service, and export metrics of single Services, named sluice_service_.")
	fs.StringVar(&f.DirectReturn, flagDirectReturn, "",
		"In nftables mode, let Services with the annotation sluice/forwarding: direct have direct return: the node that a client outside asks hands its packets to a node with an endpoint, which answers the client itself. The device on whose link the nodes are, or auto for the one with the node's address. Empty to switch it off.")
	fs.StringVar(&f.FlowTable, flagFlowTable, string(dataplane.FlowTableOff),
		"In nftables mode, forward packets of established connections past all rules, by a flow table of the kernel: outside, at the device of the node's address, or outside:eth0, at that one; devices, also at those that lead to endpoints; off.")
}

func (f *Flags) addDeprecated(fs *pflag.FlagSet) {
	fs.Int32Var(&f.healthPort, flagHealthPort, f.healthPort,
		"Port of the health server, 0 for no such server.")
	_ = fs.MarkDeprecated(flagHealthPort, "it will go away in a later version; use --healthz-bind-address")
	fs.Int32Var(&f.metricsPort, flagMetricsPort, f.metricsPort,
		"Port of the metrics server, 0 for no such server.")
	_ = fs.MarkDeprecated(flagMetricsPort, "it will go away in a later version; use --metrics-bind-address")
}

// addIgnored adds the flags that upstream's kube-proxy inherits from a library and
// ignores.
func addIgnored(fs *pflag.FlagSet) {
	fs.String("boot-id-file", "/proc/sys/kernel/random/boot_id", "Accepted for compatibility, without effect.")
	fs.String("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", "Accepted for compatibility, without effect.")
	_ = fs.MarkHidden("boot-id-file")
	_ = fs.MarkHidden("machine-id-file")
}

// addFlag adds the flag of a setting, if it has one, for fields of c.
func (s setting) addFlag(fs *pflag.FlagSet, c *Configuration) {
	if s.flag == "" {
		return
	}
	if s.modesHelp != nil {
		s.help += s.modesHelp()
	}
	switch field := pointer(at(c, s.path)).(type) {
	case *string:
		fs.StringVar(field, s.flag, *field, s.help)
	case *bool:
		fs.BoolVar(field, s.flag, *field, s.help)
	case *int32:
		fs.Int32Var(field, s.flag, *field, s.help)
	case *float32:
		fs.Float32Var(field, s.flag, *field, s.help)
	case *time.Duration:
		fs.DurationVar(field, s.flag, *field, s.help)
	case *[]string:
		fs.StringSliceVar(field, s.flag, *field, s.help)
	case pflag.Value:
		fs.VarP(field, s.flag, s.shorthand, s.help)
	}
	if flag := fs.Lookup(s.flag); len(s.also) > 0 {
		flag.Value = shared{flag.Value, s, c}
	}
}

// shared is the value of a flag that sets several fields. Until the flag is set, the
// fields keep their values; the first one is shown.
type shared struct {
	pflag.Value
	setting setting
	c       *Configuration
}

// Set is called by the flag parser.
func (s shared) Set(text string) error {
	if err := s.Value.Set(text); err != nil {
		return err
	}
	value := reflect.ValueOf(pointer(at(s.c, s.setting.path))).Elem()
	for _, path := range s.setting.also {
		reflect.ValueOf(pointer(at(s.c, path))).Elem().Set(value)
	}
	return nil
}
