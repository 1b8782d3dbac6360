package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// errNotOffered is what lookup returns for a package that apt does not know.
var errNotOffered = errors.New("the apt sources of this machine do not offer the package")

// debianPackage is a package that the apt sources offer, in the version that
// apt would install.
type debianPackage struct {
	name    string
	version string
	depends []string // names of other packages, without versions
}

// lookup finds a package.
func lookup(ctx context.Context, name string) (debianPackage, error) {
	stanza, err := run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return debianPackage{}, fmt.Errorf("%w: %s: %w", errNotOffered, name, err)
	}
	p := debianPackage{name: name}
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
// lists speak of.
func refresh(ctx context.Context) error {
	_, err := run(ctx, "", "apt-get", "-qq", "update")
	return err
}

// unpack downloads a package and unpacks it into dir.
func (p debianPackage) unpack(ctx context.Context, dir string) error {
	scratch, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	// As root, since the user that apt downloads as has no access to caches.
	_, err = run(ctx, scratch, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", p.name+"="+p.version)
	if err != nil {
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

// run runs a command in a folder and returns what it printed.
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
