//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// errNotOffered is lookup's error for a package that apt does not know.
var errNotOffered = errors.New("the apt sources do not offer the package")

// apt asks the apt sources of this machine, or others that its options name.
type apt struct{ options []string }

// with adds an option.
func (a apt) with(name, value string) apt {
	return apt{append(slices.Clip(a.options), "-o", name+"="+value)}
}

// machine has the apt sources of this machine. An index of its packages is kept, since those of
// containers keep none, and to make it for each question takes a second.
func (c Cache) machine() apt {
	return apt{}.with("Dir::Cache::pkgcache", filepath.Join(c.dir, "packages.bin"))
}

// debianPackage is a package that apt sources offer, in the version that apt
// would install.
type debianPackage struct {
	from    apt
	name    string
	version string
	depends []string // names of other packages, without versions
}

// dependency finds the package with this prefix that p depends on.
func (p debianPackage) dependency(prefix string) (name string, ok bool) {
	i := slices.IndexFunc(p.depends, func(d string) bool { return strings.HasPrefix(d, prefix) })
	if i < 0 {
		return "", false
	}
	return p.depends[i], true
}

// lookup finds a package.
func (a apt) lookup(ctx context.Context, name string) (debianPackage, error) {
	stanza, err := a.run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return debianPackage{}, fmt.Errorf("%w: %s: %w", errNotOffered, name, err)
	}
	p := debianPackage{from: a, name: name}
	for line := range strings.Lines(stanza) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch field {
		case "Version":
			p.version = value
		case "Depends":
			for dependency := range strings.SplitSeq(value, ",") {
				p.depends = append(p.depends, strings.Fields(dependency)[0])
			}
		}
	}
	if p.version == "" {
		return p, fmt.Errorf("%w: %s has no version", errNotOffered, name)
	}
	return p, nil
}

// refresh gets new lists of packages: the archive forgets versions that older
// lists name.
func (a apt) refresh(ctx context.Context) error {
	_, err := a.run(ctx, "", "apt-get", "-qq", "update")
	return err
}

// archive is the address of Debian's archive, which has all releases. Machines
// that never got their lists of packages know no labels.
func (a apt) archive(ctx context.Context) (string, error) {
	for _, prepare := range []func(context.Context) error{func(context.Context) error { return nil }, a.refresh} {
		if err := prepare(ctx); err != nil {
			return "", err
		}
		list, err := a.run(ctx, "", "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian")
		if err != nil {
			return "", err
		}
		if address, _, _ := strings.Cut(list, "\n"); address != "" {
			return address, nil
		}
	}
	return "", errors.New("the apt sources of this machine do not have Debian's archive (add it to /etc/apt/sources.list)")
}

// run runs one of apt's commands in a directory. It works as root, since the user
// that apt downloads as has no access to caches.
func (a apt) run(ctx context.Context, dir, program string, args ...string) (string, error) {
	return run(ctx, dir, slices.Concat([]string{program, "-o", "APT::Sandbox::User=root"}, a.options, args)...)
}

// unpack downloads a package and unpacks it into dir.
func (p debianPackage) unpack(ctx context.Context, dir string) error {
	scratch, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if _, err = p.from.run(ctx, scratch, "apt-get", "-qq", "download", p.name+"="+p.version); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(scratch, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("download %s: got %d packages: %w", p.name, len(files), err)
	}
	_, err = run(ctx, "", "dpkg-deb", "--extract", files[0], dir)
	return err
}

// fileName is a name for files that belong to this version of the package.
func (p debianPackage) fileName() string {
	return p.name + "_" + regexp.MustCompile(`[^0-9A-Za-z.+~-]`).ReplaceAllString(p.version, "-")
}

// run runs a command in a directory and returns what it printed.
func run(ctx context.Context, dir string, command ...string) (string, error) {
	var problems strings.Builder
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, &problems
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, problems.String())
	}
	return string(output), nil
}
