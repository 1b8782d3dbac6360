package command

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiversion "k8s.io/apimachinery/pkg/version"
)

func TestRawVersionSaysWhatTheBinaryWasBuiltFrom(t *testing.T) {
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

func TestRawVersionSplitsTheRelease(t *testing.T) {
	tests := []struct{ name, in, major, minor string }{
		{"a release", "v1.2.3", "1", "2"},
		{"commits after a release", "v0.12.1-5-gc0ffee-dirty", "0", "12"},
		{"a commit without any release", "c0ffee", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := release
			t.Cleanup(func() { release = before })
			release = test.in
			got := build()
			if got.GitVersion != test.in || got.Major != test.major || got.Minor != test.minor {
				t.Errorf("release %s is told as %#v", test.in, got)
			}
		})
	}
}
