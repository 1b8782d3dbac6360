// Package release knows the version of Sluice that a program is of.
package release

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	semantic "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// version is set by the Makefile.
var version string

// Version returns the release, or the build information if the program was not built by
// the Makefile.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// KubernetesVersion is the release of Kubernetes whose kube-proxy this one
// replaces. A test compares it with the modules of that release in go.mod.
const KubernetesVersion = "v1.37.2"

// gitVersion is the version reported to the cluster: that of Kubernetes, so that
// version skew checks work, with our own as build metadata, which they ignore.
func gitVersion() string { return gitVersionOf(Version()) }

func gitVersionOf(release string) string { return KubernetesVersion + "+sluice." + metadata(release) }

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

// Build returns the build information, in the form of all Kubernetes components.
// What is not known is empty.
func Build() apiversion.Info {
	info := apiversion.Info{
		GitVersion: gitVersion(),
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	if v, err := semantic.ParseSemantic(KubernetesVersion); err == nil {
		info.Major, info.Minor = strconv.Itoa(int(v.Major())), strconv.Itoa(int(v.Minor()))
	}
	if binary, ok := debug.ReadBuildInfo(); ok {
		addRevision(&info, binary.Settings)
	}
	return info
}

// UserAgent returns the user agent for the API server, in the form of all
// Kubernetes components.
func UserAgent(info apiversion.Info) string {
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
