package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/answer/diff"
	"sluice/internal/base/printable"
	"sluice/internal/config"
	"sluice/internal/mode"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/proxy"
	"sluice/internal/source/host"
	"sluice/internal/source/manifest"
)

// offline has the options of commands that plan without a running proxy.
type offline struct {
	flags *config.Flags
	mode  string
	node  string
}

// addFlags adds all flags of the proxy, so that its command line can be used
// unchanged, and shows those that matter.
func (o *offline) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.mode, "mode", "", "Mode of the proxy, whatever the configuration says: "+mode.Names()+".")
	flags.StringVar(&o.node, "node", "", "Name of the node to plan for. By default as for the proxy: --hostname-override, or the name of this machine.")
	others := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags = config.AddFlags(others)
	o.flags.AddOwn(others)
	others.VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Hidden || !config.Decides(f.Name)
		f.Annotations = map[string][]string{ofTheProxy: nil}
		flags.AddFlag(f)
	})
}

// ofTheProxy annotates the flags of the proxy that another command takes, too.
const ofTheProxy = "of the proxy"

func isOfTheProxy(f *pflag.Flag) bool {
	_, ok := f.Annotations[ofTheProxy]
	return ok
}

func (o *offline) resolve(emptyMode v1alpha1.ProxyMode) (*config.Settings, error) {
	c, problems, err := o.flags.Load()
	if err != nil {
		return nil, err
	}
	if o.mode != "" {
		c.Mode = v1alpha1.ProxyMode(o.mode)
	}
	s, err := o.flags.Resolve(c, emptyMode)
	if err != nil {
		return nil, err
	}
	s.Warnings = append(problems, s.Warnings...)
	s.Plan.NodeName, err = host.NodeName(cmp.Or(o.node, s.HostnameOverride))
	return s, err
}

// settings resolves the flags as of a proxy with --manifests, and prints warnings.
func (o *offline) settings(stderr io.Writer) (*config.Settings, error) {
	s, err := o.resolve(v1alpha1.ProxyMode(mode.Preferred().Name))
	if err != nil {
		return nil, err
	}
	if s.WrittenMode == "" && o.flags.ConfigFile != "" {
		printLine(stderr, "Note: "+o.flags.ConfigFile+" sets no mode: this is for "+mode.Preferred().Name+", as of a proxy with --manifests. On a node with an API server, it means "+mode.Upstream().Name+" where that is installed (set the mode in the file)")
	}
	for _, w := range s.Warnings {
		printLine(stderr, "Warning: "+w.String())
	}
	return s, nil
}

// planned is what the proxy of a node would plan for manifests.
type planned struct {
	content *manifest.Content
	desired *plan.Desired
}

// problems returns those of the manifests, and those of them that are not known.
func (p *planned) problems(known map[model.Problem]bool) (all, fresh []string) {
	return proxy.ProblemsOf(p.content, p.desired, known)
}

// known returns the problems without their places in the files.
func (p *planned) known() map[model.Problem]bool {
	known := map[model.Problem]bool{}
	for _, problem := range p.content.Problems {
		known[problem.Problem] = true
	}
	for _, problem := range diff.Problems(p.desired) {
		known[problem] = true
	}
	return known
}

// planManifests plans the manifests at a path. The machine is known from its Node
// only.
func planManifests(path string, s *config.Settings, stderr io.Writer) (*planned, error) {
	cfg := s.Plan
	content, err := manifest.Load(path, proxy.ReadFor(s))
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	state := model.NewState()
	state.Apply(&model.Dirty{}, content.Events...)
	if node := state.Node(); node != nil {
		state.Apply(&model.Dirty{}, model.SetHostIPs{IPs: node.IPs})
	} else {
		printLine(stderr, fmt.Sprintf("Note: no Node named %q is in %s: node ports have no addresses, pods cannot be recognised by the node's pod CIDRs, and hints for zones are not followed (add the Node, or choose another by --node)",
			cfg.NodeName, path))
	}
	return &planned{content, proxy.PlanAll(cfg, state)}, nil
}

func printLine(w io.Writer, line string) {
	_, _ = fmt.Fprintln(w, printable.Escape(line)) // there is nowhere to report an error
}
