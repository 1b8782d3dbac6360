package command

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	semantic "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"sluice/internal/answer/output"
	"sluice/internal/base/release"
)

// kubernetesVersion is the release of Kubernetes whose kube-proxy this one
// replaces. A test compares it with the modules of that release in go.mod.
const kubernetesVersion = "v1.37.2"

// gitVersion is the version reported to the cluster: that of Kubernetes, so that
// version skew checks work, with our own as build metadata, which they ignore.
func gitVersion() string { return gitVersionOf(release.Version()) }

func gitVersionOf(release string) string { return kubernetesVersion + "+sluice." + metadata(release) }

// metadata turns a version into build metadata of semantic versioning: identifiers
// of letters, digits and hyphens, separated by dots.
func metadata(version string) string {
	allowed := func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '-':
			return r
		}
		return '.'
	}
	words := strings.FieldsFunc(strings.Map(allowed, version), func(r rune) bool { return r == '.' })
	if len(words) == 0 {
		return "unknown"
	}
	if number, ok := strings.CutPrefix(words[0], "v"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		words[0] = number
	}
	return strings.Join(words, ".")
}

// build returns the build information, in the form of all Kubernetes components.
// What is not known is empty.
func build() apiversion.Info {
	info := apiversion.Info{
		GitVersion: gitVersion(),
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	if v, err := semantic.ParseSemantic(kubernetesVersion); err == nil {
		info.Major, info.Minor = strconv.Itoa(int(v.Major())), strconv.Itoa(int(v.Minor()))
	}
	if binary, ok := debug.ReadBuildInfo(); ok {
		addRevision(&info, binary.Settings)
	}
	return info
}

// userAgent returns the user agent for the API server, in the form of all
// Kubernetes components.
func userAgent(info apiversion.Info) string {
	commit := info.GitCommit
	if commit == "" {
		commit = "unknown"
	}
	return fmt.Sprintf("kube-proxy/%s (%s) sluice/%s", info.GitVersion, info.Platform, commit[:min(7, len(commit))])
}

// addRevision adds the revision that the binary was built from. The time is that of
// the revision, so that builds are reproducible.
func addRevision(info *apiversion.Info, settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
}

// newVersion returns the command that prints more than --version, which prints what all
// Kubernetes components do.
func newVersion() *cobra.Command {
	var out output.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of Sluice and of the Kubernetes release it is for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := struct {
				Sluice     string `json:"sluice"`
				Kubernetes string `json:"kubernetes"`
				Commit     string `json:"commit,omitempty"`
				Go         string `json:"go"`
				Platform   string `json:"platform"`
			}{release.Version(), kubernetesVersion, build().GitCommit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return out.Write(cmd.OutOrStdout(), info, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Sluice %s, a kube-proxy for Kubernetes %s (%s, %s)\n", info.Sluice, info.Kubernetes, info.Go, info.Platform)
				return err
			})
		},
	}
	out.AddFlags(cmd)
	return cmd
}

// versionFlag is --version, as in all Kubernetes components: "true", "false" or
// "raw", "true" without a value; or a version to report instead, as vendors do, of
// the same release of Kubernetes.
type versionFlag struct {
	print    string // "true", "false" or "raw"
	reported string // empty for gitVersion
}

func addVersionFlag(flags *pflag.FlagSet, v *versionFlag) {
	v.print = "false"
	flags.Var(v, "version", "Print the version and exit. With the value raw, print all that is known of the build. "+
		"With a version such as "+kubernetesVersion+"-vendor.1, report that one instead.")
	flags.Lookup("version").NoOptDefVal = "true"
}

func (v *versionFlag) String() string {
	if v.reported != "" {
		return v.reported
	}
	return v.print
}

func (v *versionFlag) Type() string { return "version" }

func (v *versionFlag) Set(text string) error {
	if text == "raw" {
		v.print = "raw"
		return nil
	}
	if strings.HasPrefix(text, "v") {
		return v.setReported(text)
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("it must be true, false or raw, or a version such as %s-vendor.1", kubernetesVersion)
	}
	v.print = strconv.FormatBool(on)
	return nil
}

func (v *versionFlag) setReported(text string) error {
	reported, err := semantic.ParseSemantic(text)
	if err != nil {
		return err
	}
	of, err := semantic.ParseSemantic(kubernetesVersion)
	if err != nil || !slices.Equal(reported.Components(), of.Components()) {
		return fmt.Errorf("it must be a version of %s, such as %s-vendor.1", kubernetesVersion, kubernetesVersion)
	}
	v.reported = text
	return nil
}

// build returns the build information, with the version to report.
func (v *versionFlag) build() apiversion.Info {
	info := build()
	if v.reported != "" {
		info.GitVersion = v.reported
	}
	return info
}

// wanted reports whether to print the version instead of running.
func (v *versionFlag) wanted() bool { return v.print != "false" }

func (v *versionFlag) write(to io.Writer) (err error) {
	if v.print == "raw" {
		_, err = fmt.Fprintf(to, "%#v\n", v.build())
	} else {
		_, err = fmt.Fprintf(to, "Kubernetes %s\n", v.build().GitVersion)
	}
	return err
}
