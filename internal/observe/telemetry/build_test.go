//go:build linux

package telemetry

import (
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

func TestBuildInfo(t *testing.T) {
	w := newWorld(t)
	info := version.Info{Major: "1", Minor: "2", GitVersion: "v1.2.3", GitCommit: "c0ffee", GitTreeState: "clean",
		BuildDate: "2026-03-01", GoVersion: "go9", Compiler: "gc", Platform: "linux/amd64"}
	if err := RegisterBuild(w.registry, info); err != nil {
		t.Fatal(err)
	}
	// In order of the names of the labels.
	w.want("kubernetes_build_info", "2026-03-01 gc c0ffee clean v1.2.3 go9 1 2 linux/amd64 1")
}
