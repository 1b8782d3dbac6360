package config

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// setting is a flag and the field of the configuration that it sets.
type setting struct {
	name      string
	shorthand string
	field     func(*Configuration) any // pointer to the field, or a pflag.Value
	help      string
}

// settings is the one place where flags and fields meet. The names are
// upstream's. The default of a flag is what New puts into its field.
//
// The flags with iptables in their names are older than nftables mode and set
// the nftables fields too, as those have no flag of their own.
var settings = []setting{
	{name: "proxy-mode",
		field: func(c *Configuration) any { return (*string)(&c.Mode) },
		help:  "How the kernel is programmed. Available: nftables, which is also what an empty value means."},
	{name: "hostname-override",
		field: func(c *Configuration) any { return &c.HostnameOverride },
		help:  "Name of this node. Empty means the machine's host name."},
	{name: "cluster-cidr",
		field: func(c *Configuration) any { return &c.ClusterCIDR },
		help:  "Range of the cluster's pod addresses; two, separated by a comma, in a dual-stack cluster. Used with --detect-local-mode=ClusterCIDR."},
	{name: "detect-local-mode",
		field: func(c *Configuration) any { return (*string)(&c.DetectLocalMode) },
		help:  "How traffic from pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix."},
	{name: "pod-bridge-interface",
		field: func(c *Configuration) any { return &c.DetectLocal.BridgeInterface },
		help:  "Bridge that the node's pods are attached to. Used with --detect-local-mode=BridgeInterface."},
	{name: "pod-interface-name-prefix",
		field: func(c *Configuration) any { return &c.DetectLocal.InterfaceNamePrefix },
		help:  "Start of the names of the interfaces that lead to the node's pods. Used with --detect-local-mode=InterfaceNamePrefix."},
	{name: "nodeport-addresses",
		field: func(c *Configuration) any { return &c.NodePortAddresses },
		help:  "Addresses of the node that serve node ports: ranges in CIDR notation, and the words primary, all and localhost, separated by commas. Empty means primary."},
	{name: "masquerade-all",
		field: func(c *Configuration) any { return bools(&c.IPTables.MasqueradeAll, &c.NFTables.MasqueradeAll) },
		help:  "Give every connection to a Service the node's address as its source."},
	{name: "iptables-masquerade-bit",
		field: func(c *Configuration) any { return numbers(c.IPTables.MasqueradeBit, c.NFTables.MasqueradeBit) },
		help:  "Bit of the packet mark, from 0 to 31, that asks for masquerading. Holds for nftables mode too."},
	{name: "iptables-sync-period",
		field: func(c *Configuration) any {
			return durations(&c.IPTables.SyncPeriod.Duration, &c.NFTables.SyncPeriod.Duration)
		},
		help: "How often the kernel is compared with what it should hold, and mended. Holds for nftables mode too."},
	{name: "iptables-min-sync-period",
		field: func(c *Configuration) any {
			return durations(&c.IPTables.MinSyncPeriod.Duration, &c.NFTables.MinSyncPeriod.Duration)
		},
		help: "Least time between two updates of the kernel. When given, it holds for nftables mode too, which otherwise does not wait."},
	{name: "feature-gates",
		field: func(c *Configuration) any { return cliflag.NewMapStringBool(&c.FeatureGates) },
		help:  "Features to switch on or off, as name=true or name=false, separated by commas. Known: AllowServiceExternalIPs (default true)."},
	{name: "v", shorthand: "v",
		field: func(c *Configuration) any { return logsapi.VerbosityLevelPflag(&c.Logging.Verbosity) },
		help:  "How much is logged: 0 is the least."},
	{name: "vmodule",
		field: func(c *Configuration) any { return logsapi.VModuleConfigurationPflag(&c.Logging.VModule) },
		help:  "Exceptions from -v for single source files, as pattern=level, separated by commas."},
}

// AddFlags adds the flags that set fields of c, a configuration made by New.
func AddFlags(fs *pflag.FlagSet, c *Configuration) {
	for _, s := range settings {
		switch field := s.field(c).(type) {
		case *string:
			fs.StringVarP(field, s.name, s.shorthand, *field, s.help)
		case *[]string:
			fs.StringSliceVarP(field, s.name, s.shorthand, *field, s.help)
		case pflag.Value:
			flag := fs.VarPF(field, s.name, s.shorthand, s.help)
			if field.Type() == boolType {
				flag.NoOptDefVal = "true"
			}
		}
	}
}
