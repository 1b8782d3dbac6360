package cli

import (
	"fmt"
	"io"
	"runtime"
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
			}{release.Version(), release.KubernetesVersion, release.Build().GitCommit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
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
		"With a version such as "+release.KubernetesVersion+"-vendor.1, report that one instead.")
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
		return fmt.Errorf("it must be true, false or raw, or a version such as %s-vendor.1", release.KubernetesVersion)
	}
	v.print = strconv.FormatBool(on)
	return nil
}

func (v *versionFlag) setReported(text string) error {
	reported, err := semantic.ParseSemantic(text)
	if err != nil {
		return err
	}
	of, err := semantic.ParseSemantic(release.KubernetesVersion)
	if err != nil || !slices.Equal(reported.Components(), of.Components()) {
		return fmt.Errorf("it must be a version of %s, such as %s-vendor.1", release.KubernetesVersion, release.KubernetesVersion)
	}
	v.reported = text
	return nil
}

// build returns the build information, with the version to report.
func (v *versionFlag) build() apiversion.Info {
	info := release.Build()
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
