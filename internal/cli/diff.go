package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/answer/diff"
	"sluice/internal/answer/question"
	"sluice/internal/source/manifest"
)

func newDiff() *cobra.Command {
	d := &diffCommand{}
	cmd := &cobra.Command{
		Use:   "diff --manifests DIRECTORY [--add | --against DIRECTORY] | --config FILE",
		Short: "Show what other manifests, or another configuration, would change",
		Long: `diff asks the proxy that runs on this node what it would change if it were given these
manifests instead of what it follows now, or this configuration file: which frontends
are added, removed and changed, and how. What needs a restart is shown as it will be
after that. Nothing is changed by it.

With --against no proxy is asked: two directories are compared, as the proxy of --node
would read them. It takes the flags of the proxy, or its configuration file.

Exit codes: 0 if there is no difference, 1 if there is one, 2 if there is no answer.`,
		Example: `  kube-proxy diff --manifests cluster/
  kube-proxy diff --config new-config.yaml
  kube-proxy diff --manifests new/ --against old/ --node worker-1`,
	}
	flags := cmd.Flags()
	flags.StringVar(&d.manifests, "manifests", "", "Directory, or file, of YAML or JSON manifests that the proxy might be given; - for standard input.")
	flags.BoolVar(&d.add, "add", false, "Add the manifests to what the proxy follows, in place of objects of the same names, instead of replacing all of it.")
	flags.StringVar(&d.against, "against", "", "Directory, or file, of manifests to compare with, instead of asking the proxy.")
	d.addFlags(flags)
	asking(cmd, question.Diff, func(ctx context.Context, a *diffAsker) error {
		report, err := d.report(ctx, cmd, a)
		if err != nil {
			return failed(err)
		}
		return a.finish(report)
	})
	flags.Lookup("config").Usage = "Configuration file that the proxy might be given or, with --against, has."
	return cmd
}

type diffCommand struct {
	offline
	manifests, against string
	add                bool
}

type diffAsker = asker[question.Proposal, diff.Report]

func (d *diffCommand) report(ctx context.Context, cmd *cobra.Command, a *diffAsker) (*diff.Report, error) {
	switch assumed := d.assumed(cmd.Flags()); {
	case d.manifests == "" && (d.flags.ConfigFile == "" || d.against != ""):
		return nil, errors.New("nothing to compare: set --manifests to a directory of manifests, or --config to a configuration file")
	case d.against != "" && (d.add || d.manifests == "-"):
		return nil, errors.New("--against compares two directories: leave out --add, and name a directory")
	case d.against != "":
		return d.compareDirectories(cmd.ErrOrStderr())
	case len(assumed) > 0:
		return nil, fmt.Errorf("only with --against: %s; the proxy that is asked knows its node and its configuration", strings.Join(assumed, ", "))
	}
	if err := d.read(&a.query, cmd.InOrStdin()); err != nil {
		return nil, err
	}
	return a.ask(ctx)
}

// assumed are the flags that say how the proxy is configured.
func (d *diffCommand) assumed(flags *pflag.FlagSet) (names []string) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == "node" || f.Name == "mode" || isOfTheProxy(f) && f.Name != "config" && f.Name != flagServiceProxyName {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// read reads the contents of the files: the proxy may not be able to.
func (d *diffCommand) read(p *question.Proposal, stdin io.Reader) (err error) {
	p.Add = d.add
	if d.manifests != "" {
		if p.Manifests, err = d.files(stdin); err != nil {
			return fmt.Errorf("read the manifests: %w", err)
		}
		if p.Manifests == nil {
			p.Manifests = []manifest.File{} // no manifests at all is a proposal, too
		}
	}
	if file := d.flags.ConfigFile; file != "" {
		if p.Config, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read the configuration file: %w", err)
		}
	}
	return nil
}

// files reads the manifests, "-" from standard input.
func (d *diffCommand) files(stdin io.Reader) ([]manifest.File, error) {
	if d.manifests != "-" {
		return manifest.ReadFiles(d.manifests, question.MaxProposalBytes)
	}
	data, err := io.ReadAll(io.LimitReader(stdin, question.MaxProposalBytes))
	return []manifest.File{{Name: "standard-input.yaml", Data: data}}, err
}

func (d *diffCommand) compareDirectories(stderr io.Writer) (*diff.Report, error) {
	s, err := d.settings(stderr)
	if err != nil {
		return nil, err
	}
	old, err := planManifests(d.against, s, stderr)
	if err != nil {
		return nil, err
	}
	new, err := planManifests(d.manifests, s, stderr)
	if err != nil {
		return nil, err
	}
	report := diff.Compare(old.desired, new.desired)
	report.Problems, report.NewProblems = new.problems(old.known())
	return report, nil
}
