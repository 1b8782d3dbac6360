package release

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiversion "k8s.io/apimachinery/pkg/version"
)

func TestRawVersionHasBuildInfo(t *testing.T) {
	tests := []struct {
		name string
		in   []debug.BuildSetting
		want apiversion.Info
	}{
		{name: "outside of a repository", in: []debug.BuildSetting{{Key: "GOARCH", Value: "arm64"}}},
		{name: "from a commit", in: []debug.BuildSetting{
			{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "c0ffee"},
			{Key: "vcs.time", Value: "2026-03-01T08:00:00Z"}, {Key: "vcs.modified", Value: "false"},
		}, want: apiversion.Info{GitCommit: "c0ffee", BuildDate: "2026-03-01T08:00:00Z", GitTreeState: "clean"}},
		{name: "from a commit and more", in: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.modified", Value: "true"},
		}, want: apiversion.Info{GitCommit: "c0ffee", GitTreeState: "dirty"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got apiversion.Info
			addRevision(&got, test.in)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// semanticVersion is a release with build metadata, as semver.org defines it.
var semanticVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*$`)

func TestGitVersionHasOurVersionAsMetadata(t *testing.T) {
	tests := []struct{ name, release, want string }{
		{"a release", "v1.2.3", KubernetesVersion + "+sluice.1.2.3"},
		{"commits after a release", "v0.12.1-5-gc0ffee-dirty", KubernetesVersion + "+sluice.0.12.1-5-gc0ffee-dirty"},
		{"a commit without any release", "c0ffee", KubernetesVersion + "+sluice.c0ffee"},
		{"built by the Go tool", "v0.0.0-20260301080000-c0ffeec0ffee+dirty", KubernetesVersion + "+sluice.0.0.0-20260301080000-c0ffeec0ffee.dirty"},
		{"not built from a commit", "(devel)", KubernetesVersion + "+sluice.devel"},
		{"a name of its own", "vanilla_1", KubernetesVersion + "+sluice.vanilla.1"},
		{"nothing that a version can hold", "???", KubernetesVersion + "+sluice.unknown"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := gitVersionOf(test.release)
			if got != test.want {
				t.Errorf("release %s is reported as %s, want %s", test.release, got, test.want)
			}
			if !semanticVersion.MatchString(got) {
				t.Errorf("%s is no semantic version", got)
			}
		})
	}
}

func TestBuildHasTheVersionOfKubernetes(t *testing.T) {
	if got := Build(); got.GitVersion != gitVersion() || got.Major != "1" || got.Minor != "37" {
		t.Errorf("the build information is %#v", got)
	}
}

// The alert KubernetesVersionMismatch compares what this leaves of the versions of
// all components.
func TestBuildInfoMetricHasKubernetesVersion(t *testing.T) {
	minor := regexp.MustCompile(`^(?:(v[0-9]*.[0-9]*).*)$`)
	ours, theirs := minor.ReplaceAllString(gitVersion(), "$1"), minor.ReplaceAllString("v1.37.0", "$1")
	if ours != theirs {
		t.Errorf("the alert compares %q with %q", ours, theirs)
	}
}

func TestKubernetesVersionMatchesModules(t *testing.T) {
	text, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := "v1" + strings.TrimPrefix(regexp.MustCompile(`k8s\.io/kube-proxy (\S+)`).FindStringSubmatch(string(text))[1], "v0")
	if KubernetesVersion != want {
		t.Errorf("it is %s, and go.mod has the kube-proxy of %s", KubernetesVersion, want)
	}
}

func TestUserAgent(t *testing.T) {
	got := UserAgent(apiversion.Info{GitVersion: "v1.37.2+sluice.1.2.3", Platform: "linux/arm64", GitCommit: "c0ffeec0ffee"})
	if want := "kube-proxy/v1.37.2+sluice.1.2.3 (linux/arm64) sluice/c0ffeec"; got != want {
		t.Errorf("user agent is %q, want %q", got, want)
	}
}
