package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// testBinary is a small binary to pack. What is in it does not matter.
func testBinary(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("gofmt")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// release packs a release and returns its files, by name.
func release(t *testing.T, version string) (dir string, files map[string]string) {
	t.Helper()
	dir = t.TempDir()
	b := testBinary(t)
	args := []string{"-version", version, "-time", "1767225600", "-chart", chartDir, "-out", dir,
		"-binary", "linux/arm64=" + b, "-binary", "linux/amd64=" + b, "-binary", "windows/amd64=" + b, "-plugin", "linux/amd64=" + b, "-plugin", "windows/amd64=" + b}
	if err := run(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	err := walk(os.DirFS(dir), func(name string, content []byte) { files[name] = string(content) })
	if err != nil {
		t.Fatal(err)
	}
	return dir, files
}

func TestReleaseIsTheSameTwice(t *testing.T) {
	_, first := release(t, "v1.2.3")
	_, second := release(t, "v1.2.3")
	if diff := cmp.Diff(first["SHA256SUMS"], second["SHA256SUMS"]); diff != "" {
		t.Errorf("checksums (-first +second):\n%s", diff)
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s differs", name)
		}
	}
	want := []string{"SHA256SUMS", "kube-proxy-linux-amd64", "kube-proxy-linux-amd64.spdx.json", "kube-proxy-linux-arm64",
		"kube-proxy-linux-arm64.spdx.json", "kube-proxy-windows-amd64.exe", "kube-proxy-windows-amd64.exe.spdx.json", "kubectl-sluice-linux-amd64", "kubectl-sluice-linux-amd64.spdx.json",
		"kubectl-sluice-windows-amd64.exe", "kubectl-sluice-windows-amd64.exe.spdx.json", "sluice-1.2.3.tgz", "sluice-v1.2.3-image-amd64.tar", "sluice-v1.2.3-image-arm64.tar", "sluice-v1.2.3-image.tar"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(first))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// What another version left behind would be mistaken for a part of this one.
func TestReleaseRemovesThatOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sluice-v0.0.9-image.tar", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{"-version", "v1.2.3", "-out", dir, "-binary", "linux/amd64=" + testBinary(t)}, io.Discard); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff([]string{"notes.txt", "sluice-v1.2.3-image-amd64.tar", "sluice-v1.2.3-image.tar"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestChecksumsAreRight(t *testing.T) {
	dir, files := release(t, "v1.2.3")
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if got, want := strings.Count(files["SHA256SUMS"], "\n"), len(files)-1; got != want {
		t.Errorf("%d checksums for %d files", got, want)
	}
}

// TestDockerReadsItsArchive reads the archive for an engine that does not know OCI's. The
// other archive is read, and run, by the tests with a cluster.
func TestDockerReadsItsArchive(t *testing.T) {
	dir, _ := release(t, "v1.2.3")
	tag, err := name.NewTag("localhost/sluice:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "sluice-v1.2.3-image-arm64.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" || config.Created.Unix() != 1767225600 {
		t.Errorf("it is for %s/%s, of %v", config.OS, config.Architecture, config.Created)
	}
	for label, want := range map[string]string{"version": "v1.2.3", "created": "2026-01-01T00:00:00Z", "licenses": "Apache-2.0"} {
		if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 1767225600 {
			t.Errorf("%s belongs to %d:%d and is of %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		got = append(got, header.FileInfo().Mode().String()+" "+header.Name)
	}
	want := []string{"drwxr-xr-x usr/", "drwxr-xr-x usr/local/", "drwxr-xr-x usr/local/bin/", "-rwxr-xr-x usr/local/bin/kube-proxy",
		"drwxr-xr-x usr/local/share/", "drwxr-xr-x usr/local/share/sluice/", "-rw-r--r-- usr/local/share/sluice/kube-proxy.spdx.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// The chart of a release has its version, and runs its image.
func TestPackedChartRunsTheImageOfItsRelease(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-gabcdef0-dirty": "1.2.3-4-gabcdef0-dirty", "0123456": "0.0.0-g0123456"} {
		dir, _ := release(t, version)
		got, err := render(filepath.Join(dir, "sluice-"+want+".tgz"), host, "daemonset.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, "image: localhost/sluice:"+version+"\n") {
			t.Errorf("the chart of %s has no image of that version:\n%s", version, got)
		}
	}
}

// helm package leaves no directories in its archives, and Helm refuses some of the types
// of entries, so this looks at the archive itself.
func TestChartArchiveHasAllFiles(t *testing.T) {
	dir, _ := release(t, "v1.2.3")
	f, err := os.Open(filepath.Join(dir, "sluice-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			got = append(got, header.Name)
		}
	}
	if err := walk(os.DirFS(chartDir), func(name string, _ []byte) { want = append(want, "sluice/"+name) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestSBOMListsTheModules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := sbom(self, "v1.2.3", time.Unix(1767225600, 0))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	ids, names := map[string]bool{d.SPDXID: true}, map[string]bool{}
	valid := regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`)
	for _, p := range d.Packages {
		if ids[p.SPDXID] || !valid.MatchString(p.SPDXID) {
			t.Errorf("identifier %q is there twice, or is none", p.SPDXID)
		}
		ids[p.SPDXID], names[p.Name] = true, true
	}
	for _, want := range []string{"stdlib", "github.com/google/go-containerregistry"} {
		if !names[want] {
			t.Errorf("it lacks %s, which is in the binary", want)
		}
	}
	related := map[string]bool{}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%v relates what is not there", r)
		}
		related[r.To] = true
	}
	if got, want := len(related), len(d.Packages); got != want {
		t.Errorf("%d of %d packages are related to the program", got, want)
	}
}

func TestIncompleteRequestsAreRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"-version", "v1", "-out", "x"}, {"-version", "v1", "-out", "x", "-binary", "linux=y"}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
