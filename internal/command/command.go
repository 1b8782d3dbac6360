package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/answer/control"
	"sluice/internal/base/spelling"
	"sluice/internal/config"
	"sluice/internal/dataplane/relay"
	"sluice/internal/kernel/capability"
	"sluice/internal/mode"
	"sluice/internal/source/host"
)

// options are the flags that are not part of the configuration.
type options struct {
	flags     *config.Flags
	set       *pflag.FlagSet
	version   versionFlag
	manifests string
	// sandbox leaves the kernel alone.
	sandbox bool
	// cleanupOwn asks to remove only what no other kube-proxy has, and exit.
	cleanupOwn bool
	// controlSocket is the path of the control socket, empty for none.
	controlSocket string
	page          pageOptions
	// exitOnConfigChange exits, as upstream does, when the configuration file changes
	// in a way that needs a restart.
	exitOnConfigChange bool
	// resetRemovedEndpoints resets TCP connections to endpoints that no longer serve.
	resetRemovedEndpoints bool
	// drainTimeout is how long connections of another kube-proxy's IPVS may last.
	drainTimeout time.Duration
	// udpTimeout and shutdownGrace are for modes in which the proxy itself forwards
	// connections: how long idle clients of UDP keep their endpoint, and how long
	// connections may last when the process is asked to end.
	udpTimeout, shutdownGrace time.Duration
	serviceMetrics            serviceMetrics
	// hangups receives SIGHUP.
	hangups chan os.Signal
	end     end
}

// Main runs the command line and returns the exit code of the process. SIGINT and
// SIGTERM shut it down gracefully, though not for longer than pods have to end, and a
// second one immediately. On SIGHUP the proxy reads its files again.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	if err := capability.Raise(); err != nil {
		fmt.Fprintln(stderr, "Warning:", err)
	}
	o := &options{}
	cmd := newCommand(o)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return o.end.await(ctx, stderr, func() int {
		err := cmd.ExecuteContext(ctx)
		klog.Flush()
		return conclude(err, stderr)
	})
}

// defaultDrainTimeout is how long IPVS keeps an idle TCP connection.
const defaultDrainTimeout = 15 * time.Minute

func newCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kube-proxy",
		Short: "Make the Services of a Kubernetes cluster work on this node",
		Long: `kube-proxy runs on every node of a Kubernetes cluster. It programs the kernel so
that connections to a Service reach one of the Service's endpoints.

This is Sluice, an independent kube-proxy. It follows Services, EndpointSlices and
its Node at the API server, or in a directory of manifests.`,
		Args:          noArgs,
		SilenceUsage:  true, // a page of flags would hide the error
		SilenceErrors: true, // Main prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.version.wanted() {
				return o.version.write(cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	flags := cmd.Flags()
	flags.SortFlags = false
	o.flags, o.set = config.AddFlags(flags), flags
	addVersionFlag(flags, &o.version)
	flags.StringVar(&o.manifests, "manifests", "",
		"Directory, or file, of YAML or JSON manifests to take Services, EndpointSlices, Nodes and ServiceCIDRs from, instead of an API server.")
	flags.BoolVar(&o.sandbox, "sandbox", false,
		"Leave the kernel alone, and serve only node ports of TCP and UDP, by sockets of this process. It needs no privileges.")
	flags.BoolVar(&o.cleanupOwn, "cleanup-own", false,
		"Remove only the rules that this proxy has and upstream's has not, from the kernel, and exit. Upstream's may be running.")
	flags.BoolVar(&o.exitOnConfigChange, "exit-on-config-change", false,
		"End the proxy when the configuration file changes in a way that needs a restart, so that it is started again. Otherwise that is logged, and everything else is applied.")
	flags.BoolVar(&o.resetRemovedEndpoints, "reset-removed-endpoints", false,
		"Reset the TCP connections of a Service's clients to an endpoint that no longer serves, so that they reconnect immediately. Otherwise they last as long as the endpoint does.")
	flags.DurationVar(&o.drainTimeout, "ipvs-drain-timeout", defaultDrainTimeout,
		"How long connections through IPVS of another kube-proxy, or of this one in another mode, may last before what they depend on is removed. 0 removes it at once.")
	flags.DurationVar(&o.udpTimeout, "udp-timeout", relay.IdleTimeout,
		"In userspace mode and with --sandbox, how long a client of UDP keeps its endpoint without packets.")
	flags.DurationVar(&o.shutdownGrace, "shutdown-grace", defaultShutdownGrace,
		"In userspace mode and with --sandbox, how long connections may go on when the proxy is asked to end.")
	o.serviceMetrics.addFlags(flags)
	addSocketFlag(flags, &o.controlSocket)
	o.page.addFlags(flags)
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetUsageFunc(writeUsage)
	cmd.SetFlagErrorFunc(flagError)
	cmd.AddCommand(newExplain(), newStatus(), newServices(), newEvents(), newRender(), newDiff(), newCheck(), newVersion())
	return cmd
}

// noArgs allows empty arguments, which an empty variable of a shell or a template
// leaves behind.
func noArgs(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if arg != "" {
			return fmt.Errorf("unknown command %q%s; see '%s --help'", arg, spelling.DidYouMean(cmd.SuggestionsFor(arg)), cmd.CommandPath())
		}
	}
	return nil
}

func (o *options) run(ctx context.Context, stderr io.Writer) error {
	if (o.flags.Cleanup || o.cleanupOwn) && o.flags.WriteConfigTo == "" {
		return o.runCleanup(ctx)
	}
	o.end.starting()
	o.hangups = make(chan os.Signal, 1)
	signal.Notify(o.hangups, syscall.SIGHUP) // from now on it does not end the process
	defer signal.Stop(o.hangups)
	o.flags.EmptyMode = emptyMode(o.manifests)
	if o.sandbox {
		o.flags.EmptyMode = v1alpha1.ProxyMode(mode.Sandbox().Name)
	}
	settings, err := o.settings()
	if err != nil {
		return err
	}
	if err := o.checkSandbox(settings); err != nil {
		return err
	}
	if o.flags.WriteConfigTo != "" {
		for _, w := range settings.Warnings {
			fmt.Fprintln(stderr, "Warning:", w)
		}
		return config.Write(o.flags.WriteConfigTo, settings.Configuration)
	}
	if o.drainTimeout < 0 {
		return fmt.Errorf("--ipvs-drain-timeout: %v is negative (use 0 to remove what is left at once)", o.drainTimeout)
	}
	if o.udpTimeout <= 0 {
		return fmt.Errorf("--udp-timeout: %v is not a time to wait for packets (use a positive duration)", o.udpTimeout)
	}
	if o.shutdownGrace < 0 {
		return fmt.Errorf("--shutdown-grace: %v is negative (use 0 to end connections at once)", o.shutdownGrace)
	}
	if _, err := o.page.own(settings.Serving.Metrics); err != nil {
		return err
	}
	logger, err := newLogger(&settings.Configuration.Logging, settings.Features)
	if err != nil {
		return err
	}
	settings.Report(logger)
	respectMemoryLimit(logger)
	if o.flags.InitOnly {
		initialize(logger, settings)
		return nil
	}
	return serve(ctx, logger, settings, o)
}

// checkSandbox makes the sandbox and the mode agree, whichever of them was chosen.
func (o *options) checkSandbox(s *config.Settings) error {
	sandbox := mode.Sandbox().Name
	if o.sandbox && s.Mode.Name != sandbox {
		return fmt.Errorf("--sandbox leaves the kernel alone, which %s mode cannot (leave out one of --sandbox and --proxy-mode, or the field mode)", s.Mode.Name)
	}
	o.sandbox = s.Mode.Name == sandbox
	if o.sandbox && !o.set.Changed("control-socket") {
		o.controlSocket = control.OwnSocket()
	}
	return nil
}

// settings resolves the command line on this node.
func (o *options) settings() (*config.Settings, error) {
	s, err := o.flags.Settings()
	if err != nil {
		return nil, err
	}
	s.Plan.NodeName, err = host.NodeName(s.HostnameOverride)
	return s, err
}

// runCleanup ignores whether the rest of the command line is valid: cleanup must
// work with the flags that the proxy had, or may have next.
func (o *options) runCleanup(ctx context.Context) error {
	logger, err := newLogger(&o.flags.Configuration.Logging, nil)
	if err != nil {
		return err
	}
	return cleanup(ctx, logger, o.cleanupOwn && !o.flags.Cleanup)
}

func newLogger(c *logsapi.LoggingConfiguration, features featuregate.FeatureGate) (logr.Logger, error) {
	if err := logsapi.ValidateAndApply(c, features); err != nil {
		return logr.Logger{}, fmt.Errorf("set up logging: %w", err)
	}
	return klog.Background(), nil
}
