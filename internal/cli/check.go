package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"sluice/internal/answer/output"
	"sluice/internal/base/release"
	"sluice/internal/cli/check"
	"sluice/internal/config"
	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/proxy"
	"sluice/internal/source/kubernetes"
	"sluice/internal/source/manifest"
)

const (
	// clusterTimeout is how long the API server may take to send everything.
	clusterTimeout = time.Minute
	// progressEvery is how often it is looked at what that waits for.
	progressEvery = 3 * time.Second
)

func newCheck() *cobra.Command {
	c := &checkCommand{}
	cmd := &cobra.Command{
		Use:   "check [--config FILE] [--manifests DIRECTORY]",
		Short: "Check a node before it is switched to this proxy",
		Long: `check finds out what to do before a node is switched to this proxy: what the kernel
lacks, which other programs interfere, which kube-proxy's rules are there, and which
Services would be served differently. Run it on the node, as root, with the
configuration that the proxy will have. It reads the Services from the cluster, by
--kubeconfig, which takes precedence over the one of the configuration, or as a pod, or
from a directory of manifests.

Nothing on the node is changed. Whether the kernel takes the rules is tried in a
network namespace that nobody else uses.

It ends with 0 if there is nothing to do, with 1 if there is, and with 2 if the check
is not possible.`,
		Example: `  kube-proxy check --config config.conf --kubeconfig admin.conf
  kube-proxy check --config config.conf --manifests cluster/ --node worker-1 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := c.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return failed(err)
			}
			err = c.format.Write(cmd.OutOrStdout(), r, func(w io.Writer) error { return check.Write(w, r) })
			if err == nil && !r.Ready() {
				return &exit{code: exitNo}
			}
			return failed(err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.manifests, "manifests", "", "Directory, or file, of manifests to take the Services from, instead of the cluster.")
	flags.BoolVar(&c.try, "try", false, "Try the mode even if that loads kernel modules.")
	c.format.AddFlags(cmd)
	c.offline.addFlags(flags)
	c.flags.Overrides = []string{"kubeconfig"}
	for _, name := range []string{"kubeconfig", "master"} {
		flags.Lookup(name).Hidden = false
	}
	return exitFailedIfWrong(cmd)
}

type checkCommand struct {
	offline
	manifests string
	try       bool
	format    output.Format
}

func (c *checkCommand) run(ctx context.Context, progress io.Writer) (*check.Report, error) {
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	o := check.Options{Settings: s, ModeReason: proxy.ModeReason(s, false, mode.Upstream().Missing()), State: model.NewState(), Try: c.try}
	s.Plan.RequireNode = c.manifests == ""
	if c.manifests == "" {
		err = readCluster(ctx, s, o.State, progress)
	} else {
		o.Refused, err = readManifests(c.manifests, s, o.State)
	}
	if err != nil {
		return nil, err
	}
	if node := o.State.Node(); node != nil {
		o.State.Apply(&model.Dirty{}, model.SetHostIPs{IPs: node.IPs})
	}
	return check.Run(ctx, o), nil
}

// settings resolves the flags as the proxy on this node does. Manifests stand for the
// cluster here: the proxy will follow its API server.
func (c *checkCommand) settings() (*config.Settings, error) {
	s, err := c.resolve(proxy.EmptyMode("", c.flags))
	if err != nil {
		return nil, err
	}
	s.Client.Master = c.flags.Master
	if _, err := os.Stat(s.Client.Connection.Kubeconfig); s.Client.Master != "" && errors.Is(err, fs.ErrNotExist) {
		s.Client.Connection.Kubeconfig = c.flags.Configuration.ClientConnection.Kubeconfig // not that of the file
	}
	return s, nil
}

// readManifests returns the problems of manifests that are not used.
func readManifests(path string, s *config.Settings, state *model.State) ([]model.Problem, error) {
	content, err := manifest.Load(path, proxy.ReadFor(s))
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	state.Apply(&model.Dirty{}, content.Events...)
	return manifest.Refused(content.Problems), nil
}

// readCluster reads everything from the API server once, and says what it waits for.
func readCluster(ctx context.Context, s *config.Settings, state *model.State, progress io.Writer) error {
	client, err := kubernetes.NewClient(s.Client.Connection, s.Client.Master, release.UserAgent(release.Build()))
	if err != nil {
		return fmt.Errorf("connect to the API server: %w; set --kubeconfig to a file that works here, such as /etc/kubernetes/admin.conf, or --manifests to a directory of manifests", err)
	}
	server := client.CoreV1().RESTClient().Get().URL()
	source := kubernetes.New(kubernetes.Options{
		Client: client, Proxy: proxy.ReadFor(s), Logger: logr.Discard(), Clock: clock.RealClock{}, ResyncPeriod: s.Client.ResyncPeriod,
	})
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	sink := &collector{state: state, synced: cancel}
	var aloud sync.WaitGroup
	aloud.Go(func() { waitAloud(ctx, progress, server.Scheme+"://"+server.Host, source.Status) })
	err = source.Run(ctx, sink)
	aloud.Wait()
	if err != nil {
		return err
	}
	if !sink.complete {
		err := source.Status().Reason
		if err == nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("the API server %s://%s does not send everything within %v: %w", server.Scheme, server.Host, clusterTimeout, err)
	}
	return nil
}

// waitAloud says what is waited for until ctx ends: after a moment, and when it changes.
func waitAloud(ctx context.Context, w io.Writer, server string, status func() kubernetes.Status) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := status()
		what := "it has not answered yet"
		switch {
		case s.Reason != nil:
			what = s.Reason.Error()
		case s.Connected:
			what = "it has not sent " + strings.Join(s.Waiting, ", ") + " yet"
		}
		if what != said {
			printLine(w, fmt.Sprintf("Waiting for the API server %s, for %v at most: %s", server, clusterTimeout, what))
			said = what
		}
	}
}

// collector keeps what a source sends until it is complete.
type collector struct {
	mu       sync.Mutex
	state    *model.State
	complete bool
	synced   func()
}

func (c *collector) Update(events ...model.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		c.state.Apply(&model.Dirty{}, events...)
	}
}

func (c *collector) Synced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
	c.synced()
}
