package command

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/pflag"
	semantic "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// release is the version that the Makefile builds in.
var release string

// version is the release, or what the Go tool knows of a binary that was not
// built by the Makefile.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}

// userAgent is how the API server's logs name this binary.
func userAgent() string {
	return "kube-proxy/" + version() + " (" + runtime.GOOS + "/" + runtime.GOARCH + ") sluice"
}

// build is what is known of this binary, as all Kubernetes components tell it.
// What is not known is empty.
func build() apiversion.Info {
	info := apiversion.Info{
		GitVersion: version(),
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	if v, err := semantic.ParseSemantic(info.GitVersion); err == nil {
		info.Major, info.Minor = strconv.Itoa(int(v.Major())), strconv.Itoa(int(v.Minor()))
	}
	if binary, ok := debug.ReadBuildInfo(); ok {
		addRevision(&info, binary.Settings)
	}
	return info
}

// addRevision tells what the binary was built from. The time is that of the
// revision, so that whoever builds it again gets the same.
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

// versionFlag is --version: "true", "false" or "raw", as in all Kubernetes
// components. Without a value it is "true".
type versionFlag string

func addVersionFlag(flags *pflag.FlagSet, v *versionFlag) {
	*v = "false"
	flags.Var(v, "version", "Print the version and exit. With the value raw, print all that is known of the build.")
	flags.Lookup("version").NoOptDefVal = "true"
}

func (v *versionFlag) String() string { return string(*v) }
func (v *versionFlag) Type() string   { return "version" }

func (v *versionFlag) Set(text string) error {
	if text == "raw" {
		*v = "raw"
		return nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return errors.New("it must be true, false or raw")
	}
	*v = versionFlag(strconv.FormatBool(on))
	return nil
}

// wanted is whether to print the version instead of running.
func (v *versionFlag) wanted() bool { return *v != "false" }

func (v *versionFlag) print(to io.Writer) (err error) {
	if *v == "raw" {
		_, err = fmt.Fprintf(to, "%#v\n", build())
	} else {
		_, err = fmt.Fprintf(to, "Sluice %s\n", version())
	}
	return err
}
