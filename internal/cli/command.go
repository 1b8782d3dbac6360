package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
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
	"sluice/internal/observe/nodecondition"
	"sluice/internal/proxy"
)

type options struct {
	proxy.Options
	version versionFlag
	// cleanupOwn asks to remove only what no other kube-proxy has, and exit.
	cleanupOwn bool
	end        end
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

const (
	// defaultDrainTimeout is how long IPVS keeps an idle TCP connection.
	defaultDrainTimeout = 15 * time.Minute
	// defaultShutdownGrace is less than what pods have to end.
	defaultShutdownGrace = 25 * time.Second
	// defaultServiceMetricsLimit allows for about 4 series of each Service, and half a
	// kilobyte of memory.
	defaultServiceMetricsLimit = 20_000
)

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
	o.Flags, o.FlagSet = config.AddFlags(flags), flags
	o.Flags.AddOwn(flags)
	addVersionFlag(flags, &o.version)
	flags.StringVar(&o.Manifests, "manifests", "",
		"Directory, or file, of YAML or JSON manifests to take Services, EndpointSlices, Nodes and ServiceCIDRs from, instead of an API server.")
	flags.BoolVar(&o.Sandbox, "sandbox", false,
		"Leave the kernel alone, and serve only node ports of TCP and UDP, by sockets of this process. It needs no privileges.")
	flags.BoolVar(&o.cleanupOwn, "cleanup-own", false,
		"Remove only the rules that this proxy has and upstream's has not, and exit. Upstream's may be running.")
	flags.BoolVar(&o.ExitOnConfigChange, "exit-on-config-change", false,
		"Exit when the configuration file changes in a way that needs a restart. By default that is logged, and everything else is applied.")
	flags.BoolVar(&o.EjectFailingEndpoints, "eject-failing-endpoints", false,
		"Give no new connections, for a while, to endpoints that do not answer them. The annotation sluice/eject of a Service counts more.")
	flags.BoolVar(&o.ResetRemovedEndpoints, "reset-removed-endpoints", false,
		"Reset the TCP connections of a Service's clients to an endpoint that no longer serves, so that they reconnect immediately. Otherwise they last as long as the endpoint does.")
	flags.DurationVar(&o.DrainTimeout, "ipvs-drain-timeout", defaultDrainTimeout,
		"How long connections through IPVS of another kube-proxy, or of this one in another mode, may last before its virtual services are removed. 0 removes them at once.")
	flags.DurationVar(&o.UDPTimeout, "udp-timeout", relay.IdleTimeout,
		"In userspace mode and with --sandbox, how long a UDP client keeps its endpoint without packets.")
	flags.DurationVar(&o.ShutdownGrace, "shutdown-grace", defaultShutdownGrace,
		"In userspace mode and with --sandbox, how long connections may go on when the proxy is asked to end.")
	flags.UintVar(&o.ServiceMetricsLimit, "service-metrics-limit", defaultServiceMetricsLimit,
		"How many Services have metrics of their own at most. The others share the name _other_.")
	flags.BoolVar(&o.NodeCondition, "node-condition", false,
		"Have condition "+nodecondition.Type+" of the Node say what /readyz says. The proxy needs the right to get nodes, and to patch nodes/status.")
	flags.StringVar(&o.StartupTaint, "startup-taint", "",
		"Key of a taint to remove from the Node when /readyz is good. The proxy needs the right to get and patch nodes.")
	addSocketFlag(flags, &o.ControlSocket)
	flags.BoolVar(&o.Page, "page", true,
		"Serve a page for browsers, about the proxy and its Services.")
	flags.StringVar(&o.PageAddress, "page-bind-address", "",
		"Address and port of the page, which has no login. If empty, the page is at / of --metrics-bind-address, on loopback addresses only.")
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
	cleanup := (o.Flags.Cleanup || o.cleanupOwn) && o.Flags.WriteConfigTo == ""
	if !cleanup {
		o.end.starting()
	}
	switch err := o.Flags.TakeOwn(); { // which reads the file
	case cleanup:
		return o.runCleanup(ctx)
	case err != nil:
		return err
	}
	sighup := make(chan os.Signal, 1)
	signal.Notify(sighup, syscall.SIGHUP) // from now on it does not end the process
	defer signal.Stop(sighup)
	o.SIGHUP, o.Serving, o.Build = sighup, o.end.serving, o.version.build()
	o.Flags.EmptyMode = proxy.EmptyMode(o.Manifests, o.Flags)
	if o.Sandbox {
		o.Flags.EmptyMode = v1alpha1.ProxyMode(mode.Sandbox().Name)
	}
	settings, err := o.Settings()
	if err != nil {
		return err
	}
	if err := o.checkSandbox(settings); err != nil {
		return err
	}
	if o.Flags.WriteConfigTo != "" {
		for _, w := range settings.Warnings {
			fmt.Fprintln(stderr, "Warning:", w)
		}
		return config.Write(o.Flags.WriteConfigTo, settings.Configuration)
	}
	if o.DrainTimeout < 0 {
		return fmt.Errorf("--ipvs-drain-timeout: %v is negative (use 0 to remove what is left at once)", o.DrainTimeout)
	}
	if o.UDPTimeout <= 0 {
		return fmt.Errorf("--udp-timeout: %v is not a time to wait for packets (use a positive duration)", o.UDPTimeout)
	}
	if o.ShutdownGrace < 0 {
		return fmt.Errorf("--shutdown-grace: %v is negative (use 0 to end connections at once)", o.ShutdownGrace)
	}
	if err := o.checkNodeFlags(); err != nil {
		return err
	}
	if _, err := o.OwnPageAddress(settings.Serving.Metrics); err != nil {
		return err
	}
	logger, err := newLogger(&settings.Configuration.Logging, settings.Features)
	if err != nil {
		return err
	}
	settings.Report(logger)
	if o.Flags.InitOnly {
		proxy.Initialize(logger, settings)
		return nil
	}
	run := func(ctx context.Context) error { return proxy.Run(ctx, logger, settings, &o.Options) }
	if settings.Configuration.WindowsRunAsService {
		return underServiceManager(ctx, run)
	}
	return run(ctx)
}

// checkNodeFlags checks what the proxy shall write to its Node.
func (o *options) checkNodeFlags() error {
	if o.Manifests != "" && (o.NodeCondition || o.StartupTaint != "") {
		return errors.New("--node-condition and --startup-taint: with --manifests there is no Node to write to (leave them out)")
	}
	if o.StartupTaint == "" {
		return nil
	}
	if wrong := validation.IsQualifiedName(o.StartupTaint); len(wrong) > 0 {
		return fmt.Errorf("--startup-taint: %q is not the key of a taint: %s (use the key alone, such as sluice/starting)", o.StartupTaint, strings.Join(wrong, "; "))
	}
	return nil
}

// checkSandbox makes the sandbox and the mode agree, whichever of them was chosen, and the control
// socket that of this proxy.
func (o *options) checkSandbox(s *config.Settings) error {
	sandbox := mode.Sandbox().Name
	if o.Sandbox && s.Mode.Name != sandbox {
		return fmt.Errorf("--sandbox leaves the kernel alone, which %s mode cannot (leave out one of --sandbox and --proxy-mode, or the field mode)", s.Mode.Name)
	}
	o.Sandbox = s.Mode.Name == sandbox
	if o.FlagSet.Changed(flagControlSocket) {
		return nil
	}
	if o.Sandbox {
		o.ControlSocket = control.OwnSocket()
	}
	o.ControlSocket = control.Named(o.ControlSocket, s.Instance)
	return nil
}

// runCleanup ignores whether the rest of the command line is valid: cleanup must
// work with the flags that the proxy had, or may have next.
func (o *options) runCleanup(ctx context.Context) error {
	logger, err := newLogger(&o.Flags.Configuration.Logging, nil)
	if err != nil {
		return err
	}
	if o.Flags.Cleanup && o.Flags.ServiceProxyName != "" {
		return errors.New("--cleanup removes the rules of all kube-proxies, and --service-proxy-name is for one beside others " +
			"(use --cleanup-own to remove its own, or leave out --service-proxy-name)")
	}
	return proxy.Cleanup(ctx, logger, o.cleanupOwn && !o.Flags.Cleanup, o.Flags.ServiceProxyName)
}

func newLogger(c *logsapi.LoggingConfiguration, features featuregate.FeatureGate) (logr.Logger, error) {
	if err := logsapi.ValidateAndApply(c, features); err != nil {
		return logr.Logger{}, fmt.Errorf("set up logging: %w", err)
	}
	return klog.Background(), nil
}
