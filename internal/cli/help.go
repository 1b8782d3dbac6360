package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/base/spelling"
)

// helpWidth is how many columns help takes at most.
const helpWidth = 100

// flagGroup is a heading of the help, and the flags below it. Names that end with * are
// prefixes.
type flagGroup struct {
	title string
	flags []string
}

// flagGroups are the groups of the proxy's flags. The first one has those of no other.
var flagGroups = []flagGroup{
	{"Configuration", nil},
	{"API server and manifests", []string{"manifests", "kubeconfig", "master", "kube-api-*", "config-sync-period"}},
	{"Rules", []string{"proxy-mode", "sandbox", "cluster-cidr", "detect-local-mode", "pod-*", "nodeport-addresses", "masquerade-all", "iptables-*", "ipvs-*",
		"proxy-port-range", "udp-timeout", "shutdown-grace", "reset-removed-endpoints", "eject-failing-endpoints", "external-ip-ranges", "reject-localhost-nodeports", "direct-return",
		"flow-table"}},
	{"Node", []string{"hostname-override", "bind-address", "oom-score-adj", "conntrack-*"}},
	{"HTTP, metrics and the control socket", []string{"healthz-*", "metrics-*", "bind-address-hard-fail", "profiling", "show-hidden-metrics-for-version",
		"service-metrics*", "page*", "control-socket"}},
	{"Log", []string{"v", "vmodule", "log-*", "logging-format"}},
	{"Windows", []string{"network-name", "source-vip", "enable-dsr", "root-hnsendpoint-name", "forward-healthcheck-vip", "windows-service"}},
}

func groupOf(name string) string {
	for _, g := range flagGroups {
		if slices.ContainsFunc(g.flags, func(pattern string) bool {
			prefix, open := strings.CutSuffix(pattern, "*")
			return name == pattern || open && strings.HasPrefix(name, prefix)
		}) {
			return g.title
		}
	}
	return flagGroups[0].title
}

// writeUsage writes how to use a command. It is a usage function of cobra.
func writeUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n\nCommands:\n", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", cmd.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasParent() {
		own, others := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
		own.SortFlags, others.SortFlags = cmd.Flags().SortFlags, cmd.Flags().SortFlags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if isOfTheProxy(f) {
				others.AddFlag(f)
			} else {
				own.AddFlag(f)
			}
		})
		writeFlags(w, "Flags", own)
		writeFlags(w, "Flags of the proxy", others)
	} else {
		writeFlagGroups(w, cmd.Flags())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nSee '%s COMMAND --help' for a command.\n", cmd.CommandPath())
	}
	return nil
}

func writeFlagGroups(w io.Writer, flags *pflag.FlagSet) {
	groups := map[string]*pflag.FlagSet{}
	flags.VisitAll(func(f *pflag.Flag) {
		title := groupOf(f.Name)
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
		}
		groups[title].AddFlag(f)
	})
	for _, g := range flagGroups {
		if groups[g.title] != nil {
			writeFlags(w, g.title, groups[g.title])
		}
	}
}

// writeFlags writes the flags below a heading, each description below its flag, so that
// long names leave room for it.
func writeFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		if d := f.DefValue; d != "" && d != "0" && d != "0s" && d != "false" && d != "[]" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(w, "  %s\n", name)
		for _, line := range wrap(usage, helpWidth-8) {
			fmt.Fprintf(w, "        %s\n", line)
		}
	})
}

// wrap breaks text into lines of at most that many columns, unless a word is longer.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// flagError adds the flags that were probably meant to the error of an unknown one. It is
// a flag error function of cobra.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	var near []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" && len(name) > 1 && spelling.Similar(name, f.Name) {
			near = append(near, "--"+f.Name)
		}
	})
	return fmt.Errorf("%w%s; see '%s --help'", err, spelling.DidYouMean(near), cmd.CommandPath())
}
