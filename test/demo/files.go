//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// copyManifests copies the manifests into the demo's own directory.
func copyManifests(from string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return "", err
	}
	if len(paths) == 0 {
		return "", fmt.Errorf("no manifests in %s: run the demo in the project's directory, with make demo", from)
	}
	to, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(path)), content, 0o644)
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(to))
		}
	}
	return to, nil
}

// keepLines rewrites a manifest with those of its lines that keep wants,
// atomically, and returns when that was and a function that undoes it.
func (d *demo) keepLines(name string, keep func(line string) bool) (at time.Time, undo func() error, err error) {
	path := filepath.Join(d.manifests, name)
	before, err := os.ReadFile(path)
	if err != nil {
		return at, nil, err
	}
	var after strings.Builder
	for line := range strings.Lines(string(before)) {
		if keep(line) {
			after.WriteString(line)
		}
	}
	at = time.Now()
	if err := replace(path, []byte(after.String())); err != nil {
		return at, nil, err
	}
	return at, func() error { return replace(path, before) }, nil
}

// replace writes a file atomically.
func replace(path string, content []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
