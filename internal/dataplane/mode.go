package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Mode describes a proxy mode: all that the rest of the program needs to know of
// it. Each mode's package has one value of this type, and package mode lists
// them. No other package knows which modes there are. Only Name, Open and
// Configuration are required.
type Mode struct {
	// Name is the value of --proxy-mode.
	Name string

	// Open opens the dataplane. The error says what the node lacks for it; it is a
	// BusyError if the same may work later.
	Open func(context.Context, Options) (Dataplane, error)
	// Missing reports what is not installed on this machine that the mode needs.
	// It does not touch the kernel. Nil if the mode needs the kernel only.
	Missing func() error
	// CheckRelease reports why the mode does not work with a kernel of a release, such
	// as 6.1.0-44-cloud-amd64. Nil if that is not known from the release.
	CheckRelease func(release string) error
	// Modules are the kernel modules that the mode uses, built in or loaded.
	Modules []string
	// Render writes what Reconcile makes in an empty kernel, for people and
	// for comparisons. The same input always gives the same text. Nil if there is
	// nothing to show.
	Render func(io.Writer, *plan.Desired, RenderOptions) error
	// Remove removes what this proxy and upstream's keep in the kernel for the mode.
	// Nil if they keep nothing there.
	Remove func(context.Context, RemoveOptions) error
	// Drain ends what another kube-proxy left in the kernel for the mode, for
	// connections that work only as long as it is there: it takes it away from new
	// connections, waits until the existing ones have ended, and removes it. Remove
	// leaves it alone if a Dataplane is running. Nil if no connection depends on the
	// mode's objects.
	Drain func(context.Context, DrainOptions) error
	// Detect finds what kube-proxies, this one and upstream's, have in the kernel for the mode, in
	// the network namespace of the caller's thread. Nil if they cannot be recognised by that.
	Detect func(*Inventory) Detection
	// UnfilteredExternalIPs means that upstream's kube-proxy, in this mode, does not apply the
	// source ranges of a load balancer IP that is also an external IP.
	UnfilteredExternalIPs bool
	// Chains are the chains of iptables that Remove removes, if there are any.
	Chains Chains
	// Variants are the implementations of the mechanism that a node may have, one
	// of which Open chooses. Nil if there is only one.
	Variants []string

	// Adjust sets what the mode asks of plan, where modes differ. Nil for nothing.
	Adjust func(*plan.Config)
	// Configuration says which parts of the configuration are this mode's.
	Configuration Configuration

	// Metrics are the names of the metrics, of those that are not shown in every
	// mode, that are shown in this one.
	Metrics []string
	// Counters are metrics that the dataplane keeps itself. It is a Counter if
	// there are any.
	Counters []Metric

	// WithoutKernel means that the mode programs nothing in the kernel: there is nothing to
	// prepare, to watch or to remove there.
	WithoutKernel bool
	// Named means that several proxies can serve a node in the mode, each with an Instance, beside one
	// without in any mode, or upstream's: nothing in the kernel is of two of them.
	Named bool
	// BesideIPTables means that the rules are not those of iptables. Other programs
	// on the node that use iptables may then expect a chain of kube-proxy's
	// there, or drop what is forwarded.
	BesideIPTables bool
}

// Chains is iptables.Chains, of a package that needs Linux.
type Chains struct {
	Entry []string
	Has   func(chain string) bool
}

// RenderOptions configures Mode.Render.
type RenderOptions struct {
	Families []model.Family
	ModeSettings
}

// RemoveOptions configures Mode.Remove.
type RemoveOptions struct {
	Logger logr.Logger
	// Instance is the named proxy whose objects are removed, and no others; empty for all but those
	// of named ones.
	Instance string
	// Running is the Dataplane in use, whose objects stay; nil if there is none.
	Running Dataplane
	// KeepMark leaves the chain KUBE-MARK-MASQ alone: the caller maintains it.
	KeepMark bool
	// OwnOnly leaves alone what upstream's kube-proxy has too: it may be running.
	OwnOnly bool
}

// DrainOptions configures Mode.Drain.
type DrainOptions struct {
	Logger logr.Logger
	// Running is the Dataplane in use, whose objects stay.
	Running Dataplane
	ModeSettings
	// Timeout is how long to wait at most; connections that remain then end.
	Timeout time.Duration
	// Report is called when the numbers change, the last time with zeros.
	Report func(Draining)
}

// Draining is what is left of another kube-proxy.
type Draining struct {
	Connections int       `json:"connections"` // those that depend on the virtual services
	Services    int       `json:"services"`    // virtual services
	Until       time.Time `json:"until"`       // connections end then at the latest
}

func (d *Draining) String() string {
	return fmt.Sprintf("%s of an earlier kube-proxy at %s, until %s", printable.Count(d.Connections, "connection"),
		printable.Count(d.Services, "virtual service"), d.Until.UTC().Format("15:04:05 UTC"))
}

// BusyError is the error of Open where another program keeps the mechanism busy.
type BusyError struct{ Err error }

func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *BusyError) Unwrap() error { return e.Err }

// ErrUnsupported is in the error of Open if the kernel lacks the mechanism of the mode.
var ErrUnsupported = errors.New("the kernel does not support the mode")

// Options configures a dataplane.
type Options struct {
	Logger logr.Logger
	// Variant is one of the mode's variants; empty chooses what the node uses.
	Variant string
	// NetNS is an open network namespace to work in; 0 is the caller's own.
	NetNS int
	ModeSettings
	// Forwarding is for modes in which the proxy itself forwards connections.
	Forwarding Forwarding
}

// ModeSettings are what the configuration has for single modes, which read theirs.
type ModeSettings struct {
	// Instance is what the proxy is called that serves a node beside others; empty for one that
	// serves it alone. It is a valid value of a label.
	Instance string

	// Uncounted leaves out what only counts connections, where the kernel would not count anyway.
	Uncounted bool

	IPVS    IPVS
	Windows Windows
	// Ports are those that the proxy listens on if it forwards connections itself.
	Ports PortRange
}

// IPVS are the settings of IPVS.
type IPVS struct {
	// Scheduler chooses endpoints where a Service does not say how; empty for the
	// default.
	Scheduler string
	// StrictARP sets the sysctls arp_ignore and arp_announce.
	StrictARP bool
	// ExcludeCIDRs are ranges with virtual services of others.
	ExcludeCIDRs []netip.Prefix
	// After these times without packets, connections are forgotten: TCP, TCP after the
	// first FIN, and UDP. A zero leaves the kernel's as it is.
	TCPTimeout, TCPFinTimeout, UDPTimeout time.Duration
}

// Forwarding are the settings of a proxy that forwards connections itself.
type Forwarding struct {
	// UDPTimeout is how long a UDP client keeps its endpoint without packets; 0 for the
	// default.
	UDPTimeout time.Duration
	// ResetRemoved resets TCP connections when their endpoint no longer serves.
	ResetRemoved bool
	// Tried is called after each attempt to connect to an endpoint; may be nil.
	Tried func(Attempt)
}

// Windows are the settings of the Host Networking Service of Windows.
type Windows struct {
	// Network is the name of the network that the pods are in.
	Network string
	// SourceVIP is the source address of connections that the node opens to pods of an overlay.
	SourceVIP netip.Addr
	// DSR has endpoints answer the clients of ClusterIPs directly.
	DSR bool
	// RootEndpoint is the name of the node's own endpoint, to which health checks at load balancer
	// IPs go if ForwardHealthChecks.
	RootEndpoint        string
	ForwardHealthChecks bool
}

// PortRange is a range of ports; the zero value stands for any that are free.
type PortRange struct{ First, Last uint16 }

// Configuration says how a mode reads KubeProxyConfiguration. Section and
// MasqueradeSection are required: a mode without sections of its own reads another
// mode's.
type Configuration struct {
	// Section is the section with the mode's syncPeriod and minSyncPeriod, and all
	// that only this mode has.
	Section string
	// MasqueradeSection is the section with masqueradeAll and masqueradeBit.
	MasqueradeSection string
	// InheritSection is the section that counts as well where no mode was
	// chosen: upstream chooses another mode there, and reads that one's.
	InheritSection string
	// Gate is the feature gate without which the mode is refused, as upstream refuses it; empty for none.
	Gate string
	// AlsoSection is a section with settings of the mode that has no syncPeriod; empty for none.
	AlsoSection string
	// Without are the fields for all modes that have no effect in this one.
	Without []string
	// PortRange means that the mode listens on ports of portRange.
	PortRange bool
	// PrimaryNodePorts means that node ports are served on the node's primary
	// addresses if nodePortAddresses is empty, and otherwise on all of them.
	PrimaryNodePorts bool
	// LocalhostNodePorts means that node ports are served on 127.0.0.1 also if
	// it is not named, unless localhostNodePorts in Section is false.
	LocalhostNodePorts bool
	// CountsLoopback means that packets to node ports on loopback addresses can be counted that
	// are not served there: the mode's Dataplane is a LoopbackCounter, and has upstream's metric.
	CountsLoopback bool
	// FlowTables means that flow tables of the kernel can forward established connections: the mode's
	// Dataplane is an Offloader.
	FlowTables bool
}

// Metric describes a metric.
type Metric struct {
	Name, Help string
	Labels     []string
	Counter    bool // it only grows
}
