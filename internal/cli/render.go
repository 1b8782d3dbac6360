package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

func newRender() *cobra.Command {
	r := &renderCommand{}
	cmd := &cobra.Command{
		Use:   "render --manifests DIRECTORY [--mode MODE] [--node NAME] [--family FAMILY]",
		Short: "Print the rules for a directory of manifests",
		Long: `render prints the complete rules that the proxy of a node would make for a directory of
manifests, in the form in which nft lists them, or in which iptables takes them. It
does not touch the machine, and needs no rights.

Of the machine it knows what the Node of that name in the directory says. It takes the
flags of the proxy.

It ends with 0, with 1 if something is wrong with the manifests, which it reports on
standard error, and with 2 if it cannot print the rules.`,
		Example: `  kube-proxy render --manifests cluster/ --node worker-1 --cluster-cidr 10.244.0.0/16
  kube-proxy render --manifests cluster/ --node worker-1 --mode iptables --family ipv4`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&r.manifests, "manifests", "", "Directory, or file, of YAML or JSON manifests.")
	flags.StringVar(&r.family, "family", "", "Print the rules of one family only: ipv4 or ipv6.")
	r.addFlags(flags)
	return exitFailedIfWrong(cmd)
}

type renderCommand struct {
	offline
	manifests, family string
}

func (r *renderCommand) run(stdout, stderr io.Writer) error {
	if r.manifests == "" {
		return failed(errors.New("nothing to render: set --manifests to a directory of manifests"))
	}
	families, err := familiesOf(r.family)
	if err != nil {
		return failed(err)
	}
	s, err := r.settings(stderr)
	if err != nil {
		return failed(err)
	}
	if s.Mode.Render == nil {
		return failed(fmt.Errorf("mode %s has no rules to print", s.Mode.Name))
	}
	p, err := planManifests(r.manifests, s, stderr)
	if err != nil {
		return failed(err)
	}
	if err := s.Mode.Render(stdout, p.desired, dataplane.RenderOptions{Families: families, ModeSettings: s.ModeSettings}); err != nil {
		return failed(fmt.Errorf("write the rules: %w", err))
	}
	problems, _ := p.problems(nil)
	for _, problem := range problems {
		printLine(stderr, "Problem: "+problem)
	}
	if len(problems) > 0 {
		return &exit{code: exitNo}
	}
	return nil
}

func familiesOf(name string) ([]model.Family, error) {
	switch name {
	case "":
		return model.Families[:], nil
	case "ipv4":
		return []model.Family{model.IPv4}, nil
	case "ipv6":
		return []model.Family{model.IPv6}, nil
	}
	return nil, fmt.Errorf("%q is not a family: set --family to ipv4 or ipv6, or leave it out for both", name)
}
