//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// debian13 is the code name of Debian 13.
	debian13 = "trixie"
	// debian12Kernel is how the version of the kernel of Debian 12 begins. Newer
	// kernels get the programs of Debian 13.
	debian12Kernel = "6.1."
)

// debian13Packages are the packages that debian13Programs are in.
var debian13Packages = []string{"nftables", "iptables"}

// debian13Programs are binaries by name, and the files that they are found in.
func debian13Programs() map[string]string {
	programs := map[string]string{"nft": "nft"}
	maps.Copy(programs, iptablesPrograms)
	return programs
}

// programScript runs a binary with the loader and the libraries next to it.
const programScript = `#!/bin/sh
lib="${0%%/*}/lib"
export XTABLES_LIBDIR="$lib/xtables"
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" --argv0 "${0##*/}" "$lib/%s" "$@"
`

// release has the packages of a release of Debian, whatever this machine is. The
// lists of packages are in the cache.
func (c Cache) release(ctx context.Context, name string) (apt, error) {
	in := func(dir string) apt {
		return apt{}.
			with("Dir::Etc::SourceList", filepath.Join(dir, "sources")).
			with("Dir::Etc::SourceParts", "-").
			with("Dir::State::Lists", filepath.Join(dir, "lists")).
			with("Dir::Cache", dir).
			with("Dir::Cache::pkgcache", filepath.Join(dir, "packages.bin"))
	}
	dir, err := c.entry(name, func(dir string) error {
		archive, err := c.machine().archive(ctx)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg target=Packages] %s %s main\n", archive, name)
		err = errors.Join(os.WriteFile(filepath.Join(dir, "sources"), []byte(line), 0o644),
			os.MkdirAll(filepath.Join(dir, "lists/partial"), 0o755))
		if err != nil {
			return err
		}
		return in(dir).refresh(ctx)
	})
	return in(dir), err
}

// refresh gets new lists of packages, of this machine, of Debian 13, and of the
// releases that kernels are to come from.
func (c Cache) refresh(ctx context.Context, kernels []string) error {
	errs := []error{c.machine().refresh(ctx)}
	releases := map[string]bool{debian13: true}
	for _, name := range kernels {
		if _, release, other := strings.Cut(name, "/"); other {
			releases[release] = true
		}
	}
	for name := range releases {
		release, err := c.release(ctx, name)
		if err == nil {
			err = release.refresh(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// debian13Dir is a directory with debian13Programs, which run on any machine.
func (c Cache) debian13Dir(ctx context.Context) (string, error) {
	release, err := c.release(ctx, debian13)
	if err != nil {
		return "", err
	}
	var packages []debianPackage
	var names []string
	for _, name := range debian13Packages {
		p, err := release.lookup(ctx, name)
		if err != nil {
			return "", err
		}
		packages, names = append(packages, p), append(names, p.fileName())
	}
	dir, err := c.entry(strings.Join(names, "_"), func(dir string) error { return preparePrograms(ctx, packages, dir) })
	if err != nil {
		return "", fmt.Errorf("get programs of Debian %s: %w", debian13, err)
	}
	return dir, nil
}

// preparePrograms fills dir with debian13Programs: scripts, and a directory with
// what they run.
func preparePrograms(ctx context.Context, packages []debianPackage, dir string) error {
	tree, lib := filepath.Join(dir, "package"), filepath.Join(dir, "lib")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	done := map[string]bool{}
	for _, p := range packages {
		if err := unpackAll(ctx, p, tree, done); err != nil {
			return err
		}
	}
	extensions, err := filepath.Glob(filepath.Join(tree, extensionsDir, "*.so"))
	if err != nil {
		return err
	}
	files, err := writeScripts(tree, dir)
	if err != nil {
		return err
	}
	libraries, err := librariesOf(ctx, tree, slices.Concat(files, extensions))
	if err != nil {
		return err
	}
	return errors.Join(copyFiles(ctx, slices.Concat(files, libraries), lib),
		copyFiles(ctx, extensions, filepath.Join(lib, "xtables")))
}

// writeScripts writes the scripts to dir, and returns which files of a tree they
// run.
func writeScripts(tree, dir string) ([]string, error) {
	needed := map[string]bool{}
	for name, file := range debian13Programs() {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, programScript, file), 0o755); err != nil {
			return nil, err
		}
		path, err := findFile(tree, file)
		if err != nil {
			return nil, err
		}
		needed[path] = true
	}
	return slices.Collect(maps.Keys(needed)), nil
}

// librariesOf finds the loader that is in a tree, and what it loads for files.
func librariesOf(ctx context.Context, tree string, files []string) ([]string, error) {
	loader, err := findFile(tree, "ld-linux-x86-64.so.2")
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{loader: true}
	inTree := regexp.MustCompile(regexp.QuoteMeta(tree) + `\S+`)
	for _, file := range files {
		list, err := run(ctx, "", loader, "--library-path", filepath.Dir(loader), "--list", file)
		if err != nil {
			return nil, err
		}
		for _, library := range inTree.FindAllString(list, -1) {
			needed[library] = true
		}
	}
	return slices.Collect(maps.Keys(needed)), nil
}

// copyFiles copies files to a directory, which it makes. Links are followed.
func copyFiles(ctx context.Context, files []string, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := run(ctx, "", slices.Concat([]string{"cp", "--dereference", "--target-directory=" + dir}, files)...)
	return err
}

// unpackAll unpacks a package and all that it depends on.
func unpackAll(ctx context.Context, p debianPackage, dir string, done map[string]bool) error {
	if done[p.name] {
		return nil
	}
	done[p.name] = true
	if err := p.unpack(ctx, dir); err != nil {
		return err
	}
	for _, name := range p.depends {
		d, err := p.from.lookup(ctx, strings.TrimSuffix(name, ":any"))
		if err != nil {
			return err
		}
		if err := unpackAll(ctx, d, dir, done); err != nil {
			return err
		}
	}
	return nil
}
