package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// imageName is the name under which the archives are loaded. No registry has it, so
	// that an image that was not loaded is never pulled from somebody else.
	imageName = "localhost/sluice"
	// program is where upstream's image has its kube-proxy, so that one image can
	// replace the other.
	program = "/usr/local/bin/kube-proxy"
	// sbomPath is where the image has the list of what the program is made of.
	sbomPath = "/usr/local/share/sluice/kube-proxy.spdx.json"
)

// packImages writes one archive with the images of all platforms, in the layout of OCI,
// and for engines that read only their own format one archive for each.
func (r *request) packImages() ([]string, error) {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var files []string
	for _, b := range r.binaries {
		if b.program != proxy || b.os != "linux" {
			continue // the others program no kernel
		}
		image, err := r.image(b)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", b.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: b.os, Architecture: b.arch},
		}})
		file := fmt.Sprintf("sluice-%s-image-%s.tar", r.version, b.arch)
		if err := r.writeDocker(image, file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	file := fmt.Sprintf("sluice-%s-image.tar", r.version)
	return append(files, file), r.writeOCI(index, file)
}

// image is the one for a platform: the program, and what it is made of.
func (r *request) image(b binary) (v1.Image, error) {
	content, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	list, err := sbom(b.path, r.version, r.time)
	if err != nil {
		return nil, err
	}
	files, err := archive(r.time, []entry{
		{path: program, mode: 0o755, content: content, capability: netAdmin},
		{path: sbomPath, mode: 0o644, content: list},
	})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: r.time}, CreatedBy: "make image", Comment: path.Base(program) + " " + r.version,
	}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture = v1.Time{Time: r.time}, b.os, b.arch
	config.Config = v1.Config{
		Entrypoint: []string{program},
		// For "kubectl exec POD -- kube-proxy status".
		Env:    []string{"PATH=" + path.Dir(program)},
		Labels: r.labels(),
	}
	return mutate.ConfigFile(image, config)
}

// labels are those that tools for images know.
func (r *request) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "Sluice",
		"org.opencontainers.image.description": "A kube-proxy for Linux nodes, with nftables",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.created":     r.time.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

func (r *request) tag() string { return imageName + ":" + r.version }

// writeDocker writes an archive that docker load reads.
func (r *request) writeDocker(image v1.Image, file string) error {
	tag, err := name.NewTag(r.tag())
	if err != nil {
		return err
	}
	return tarball.WriteToFile(filepath.Join(r.out, file), tag, image)
}

// writeOCI writes an archive of an OCI layout, which ctr images import, podman load and
// skopeo copy read.
func (r *request) writeOCI(index v1.ImageIndex, file string) error {
	dir, err := os.MkdirTemp("", "sluice-layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          r.tag(),
	}))
	if err != nil {
		return err
	}
	entries, err := readTree(dir)
	if err != nil {
		return err
	}
	content, err := archive(r.time, entries)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, file), content, 0o644)
}

// entry is a file of an archive.
type entry struct {
	path       string
	mode       int64
	content    []byte
	capability string // its extended attribute security.capability, if any
}

// netAdmin is the extended attribute security.capability of a program that is permitted to
// have CAP_NET_ADMIN, whatever its user, if the container is: version 2, then the 64
// permitted and no inheritable capabilities, in words of 32 bits. It is not made effective
// by this: the kernel would then refuse to run the program where the capability is missing.
const netAdmin = "\x00\x00\x00\x02" + "\x00\x10\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// readTree returns the files of a directory.
func readTree(dir string) (out []entry, err error) {
	root := os.DirFS(dir)
	err = walk(root, func(path string, content []byte) {
		out = append(out, entry{path: path, mode: 0o644, content: content})
	})
	return out, err
}

// archive is a tar archive with entries in order, each after its directories. All of it
// has the same time and belongs to root.
func archive(at time.Time, entries []entry) ([]byte, error) {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	seen := map[string]bool{}
	for _, e := range entries {
		name := strings.TrimPrefix(e.path, "/")
		for _, dir := range parents(name) {
			if seen[dir] {
				continue
			}
			seen[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at}); err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: e.mode, Size: int64(len(e.content)), ModTime: at}
		if e.capability != "" {
			header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": e.capability}
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// parents are the directories of a path, from the top.
func parents(name string) (out []string) {
	for i, c := range name {
		if c == '/' {
			out = append(out, name[:i])
		}
	}
	return out
}
