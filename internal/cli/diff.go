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
	"sluice/internal/answer/output"
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.stdin = cmd.InOrStdin()
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.Name == "node" || f.Name == "mode" || isOfTheProxy(f) && f.Name != "config" {
					d.assumed = append(d.assumed, "--"+f.Name)
				}
			})
			report, err := d.report(cmd.Context(), cmd.ErrOrStderr())
			if err == nil {
				err = d.write(cmd.OutOrStdout(), report)
			}
			if err != nil {
				return failed(err)
			}
			if report.Different() {
				return &exit{code: exitNo}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&d.manifests, "manifests", "", "Directory, or file, of YAML or JSON manifests that the proxy might be given; - for standard input.")
	flags.BoolVar(&d.add, "add", false, "Add the manifests to what the proxy follows, in place of objects of the same names, instead of replacing all of it.")
	flags.StringVar(&d.against, "against", "", "Directory, or file, of manifests to compare with, instead of asking the proxy.")
	d.format.AddFlags(cmd)
	addSocketFlag(flags, &d.socket)
	d.addFlags(flags)
	flags.Lookup("config").Usage = "Configuration file that the proxy might be given or, with --against, has."
	return asking(cmd)
}

type diffCommand struct {
	offline
	manifests, against, socket string
	format                     output.Format
	add                        bool
	stdin                      io.Reader
	assumed                    []string // flags that say how the proxy is configured
}

func (d *diffCommand) write(w io.Writer, r *diff.Report) error {
	return d.format.Write(w, r, func(w io.Writer) error { return diff.Write(w, r) })
}

func (d *diffCommand) report(ctx context.Context, stderr io.Writer) (*diff.Report, error) {
	switch {
	case d.manifests == "" && (d.flags.ConfigFile == "" || d.against != ""):
		return nil, errors.New("nothing to compare: set --manifests to a directory of manifests, or --config to a configuration file")
	case d.against != "" && (d.add || d.manifests == "-"):
		return nil, errors.New("--against compares two directories: leave out --add, and name a directory")
	case d.against != "":
		return d.compareDirectories(stderr)
	case len(d.assumed) > 0:
		return nil, fmt.Errorf("only with --against: %s; the proxy that is asked knows its node and its configuration", strings.Join(d.assumed, ", "))
	}
	return d.ask(ctx)
}

// ask sends the contents of the files: the proxy may not be able to read them.
func (d *diffCommand) ask(ctx context.Context) (*diff.Report, error) {
	p := question.Proposal{Add: d.add}
	var err error
	if d.manifests != "" {
		if p.Manifests, err = d.files(); err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		if p.Manifests == nil {
			p.Manifests = []manifest.File{} // no manifests at all is a proposal, too
		}
	}
	if file := d.flags.ConfigFile; file != "" {
		if p.Config, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("read the configuration file: %w", err)
		}
	}
	client := newClient(d.socket)
	defer client.Close()
	report := &diff.Report{}
	return report, client.Post(ctx, question.DiffPage, &p, report)
}

// files reads the manifests, "-" from standard input.
func (d *diffCommand) files() ([]manifest.File, error) {
	if d.manifests != "-" {
		return manifest.ReadFiles(d.manifests, question.MaxProposalBytes)
	}
	data, err := io.ReadAll(io.LimitReader(d.stdin, question.MaxProposalBytes))
	return []manifest.File{{Name: "standard-input.yaml", Data: data}}, err
}

func (d *diffCommand) compareDirectories(stderr io.Writer) (*diff.Report, error) {
	s, err := d.settings(stderr)
	if err != nil {
		return nil, err
	}
	old, err := planManifests(d.against, s.Plan, stderr)
	if err != nil {
		return nil, err
	}
	new, err := planManifests(d.manifests, s.Plan, stderr)
	if err != nil {
		return nil, err
	}
	report := diff.Compare(old.desired, new.desired)
	report.Problems, report.NewProblems = new.problems(old.known())
	return report, nil
}
