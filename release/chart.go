package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var semantic = regexp.MustCompile(`^v?(\d+\.\d+\.\d+([-+].*)?)$`)

// chartVersion is a version of the form that Helm demands.
func chartVersion(version string) string {
	if m := semantic.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0-g" + version // the "g" because a number may not begin with 0 there
}

// packChart writes the chart as helm package does, but always the same bytes.
func (r *request) packChart() (string, error) {
	const dir = "sluice"
	var entries []entry
	// In the repository, the chart has these versions.
	versions := strings.NewReplacer("version: 0.0.0\n", "version: "+chartVersion(r.version)+"\n",
		"appVersion: dev\n", fmt.Sprintf("appVersion: %q\n", r.version))
	err := walk(os.DirFS(r.chart), func(name string, content []byte) {
		if name == "Chart.yaml" {
			content = []byte(versions.Replace(string(content)))
		}
		entries = append(entries, entry{path: path.Join(dir, name), mode: 0o644, content: content})
	})
	if err != nil {
		return "", err
	}
	content, err := archive(r.time, entries)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(content); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	file := fmt.Sprintf("sluice-%s.tgz", chartVersion(r.version))
	return file, os.WriteFile(filepath.Join(r.out, file), out.Bytes(), 0o644)
}

// walk calls f for each file below a directory, in order.
func walk(root fs.FS, f func(name string, content []byte)) error {
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err == nil {
			f(name, content)
		}
		return err
	})
}
