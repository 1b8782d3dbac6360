package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"sluice/internal/config"
	"sluice/internal/host"
)

// ErrNoManifests says that it is not known where the Services come from.
var ErrNoManifests = errors.New("no source of Services: set --manifests to a folder of manifests; " +
	"connecting to an API server is not part of this version")

// options is what the command line says beside the configuration.
type options struct {
	config    *config.Configuration
	manifests string
	cleanup   bool
}

// Main runs the command line and returns the exit code of the process. The
// signals SIGINT and SIGTERM end it in good order, a second one at once.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	klog.Flush()
	if err != nil {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	o := &options{config: config.New()}
	cmd := &cobra.Command{
		Use:   "kube-proxy",
		Short: "Make the Services of a Kubernetes cluster work on this node",
		Long: `kube-proxy runs on every node of a Kubernetes cluster. It programs the kernel so
that connections to a Service reach one of the Service's endpoints.

This is Sluice, a kube-proxy of its own. It reads Services, EndpointSlices and
Nodes from a folder of manifests and follows the changes there.`,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // a page of flags would hide the error
		SilenceErrors: true, // Main prints it
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.SetVersionTemplate("Sluice {{.Version}}\n")
	cmd.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	flags := cmd.Flags()
	flags.SortFlags = false
	config.AddFlags(flags, o.config)
	flags.StringVar(&o.manifests, "manifests", "",
		"Folder, or file, of YAML or JSON manifests to take Services, EndpointSlices, Nodes and ServiceCIDRs from.")
	flags.BoolVar(&o.cleanup, "cleanup", false,
		"Remove all rules of this proxy from the kernel, and exit.")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.cleanup {
		return o.runCleanup(ctx)
	}
	settings, err := config.Resolve(o.config)
	nodeName, nameErr := host.NodeName(o.config.HostnameOverride)
	if err := errors.Join(err, nameErr, o.sourceMissing()); err != nil {
		return err
	}
	settings.Plan.NodeName = nodeName
	logger, err := o.logger()
	if err != nil {
		return err
	}
	for _, w := range settings.Warnings {
		logger.Info("Warning: " + w.String())
	}
	return serve(ctx, logger, settings, o.manifests)
}

// runCleanup does not care whether the rest of the command line is sound:
// cleaning up must work with the flags that the proxy had, or may have next.
func (o *options) runCleanup(ctx context.Context) error {
	logger, err := o.logger()
	if err != nil {
		return err
	}
	return cleanup(ctx, logger)
}

func (o *options) sourceMissing() error {
	if o.manifests == "" {
		return ErrNoManifests
	}
	return nil
}

func (o *options) logger() (logr.Logger, error) {
	if err := logsapi.ValidateAndApply(&o.config.Logging, nil); err != nil {
		return logr.Logger{}, fmt.Errorf("set up logging: %w", err)
	}
	return klog.Background(), nil
}
