package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// debian13 is the code name of Debian 13, and debian13Kernel how the version
	// of its kernel begins.
	debian13       = "trixie"
	debian13Kernel = "6.12."
)

// nftScript runs nft with the loader and the libraries next to it.
const nftScript = `#!/bin/sh
lib="${0%/*}/lib"
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$lib/nft" "$@"
`

// release has the packages of a release of Debian, whatever this machine is. The
// lists of packages are in the cache.
func (c Cache) release(ctx context.Context, name string) (apt, error) {
	in := func(dir string) apt {
		option := func(name, value string) []string { return []string{"-o", name + "=" + value} }
		var a apt
		a.options = append(a.options, option("Dir::Etc::SourceList", filepath.Join(dir, "sources"))...)
		a.options = append(a.options, option("Dir::Etc::SourceParts", "-")...)
		a.options = append(a.options, option("Dir::State::Lists", filepath.Join(dir, "lists"))...)
		a.options = append(a.options, option("Dir::Cache", dir)...)
		return a
	}
	dir, err := c.entry(name, func(dir string) error {
		line := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg target=Packages] http://deb.debian.org/debian " +
			name + " main\n"
		err := errors.Join(os.WriteFile(filepath.Join(dir, "sources"), []byte(line), 0o644),
			os.MkdirAll(filepath.Join(dir, "lists/partial"), 0o755))
		if err != nil {
			return err
		}
		return in(dir).refresh(ctx)
	})
	return in(dir), err
}

// refresh gets new lists of packages, of this machine and of Debian 13.
func (c Cache) refresh(ctx context.Context) error {
	release, err := c.release(ctx, debian13)
	if err != nil {
		return errors.Join(machine.refresh(ctx), err)
	}
	return errors.Join(machine.refresh(ctx), release.refresh(ctx))
}

// debian13Nft is a folder with the nft of Debian 13, which runs on any machine.
func (c Cache) debian13Nft(ctx context.Context) (string, error) {
	release, err := c.release(ctx, debian13)
	if err != nil {
		return "", err
	}
	p, err := release.lookup(ctx, "nftables")
	if err != nil {
		return "", err
	}
	dir, err := c.entry(p.fileName(), func(dir string) error { return prepareNft(ctx, p, dir) })
	if err != nil {
		return "", fmt.Errorf("get nft of Debian %s: %w", debian13, err)
	}
	return dir, nil
}

// prepareNft fills dir with nft, its libraries, and a script that runs it.
func prepareNft(ctx context.Context, p debianPackage, dir string) error {
	tree, lib := filepath.Join(dir, "package"), filepath.Join(dir, "lib")
	if err := errors.Join(os.Mkdir(tree, 0o755), os.Mkdir(lib, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := unpackAll(ctx, p, tree, map[string]bool{}); err != nil {
		return err
	}
	program, err := findFile(tree, "nft")
	if err != nil {
		return err
	}
	loader, err := findFile(tree, "ld-linux-x86-64.so.2")
	if err != nil {
		return err
	}
	needed, err := run(ctx, "", loader, "--library-path", filepath.Dir(loader), "--list", program)
	if err != nil {
		return err
	}
	files := append(regexp.MustCompile(regexp.QuoteMeta(tree)+`\S+`).FindAllString(needed, -1), program, loader)
	for _, file := range files {
		if _, err := run(ctx, "", "cp", "--dereference", file, lib); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "nft"), []byte(nftScript), 0o755)
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
