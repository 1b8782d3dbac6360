//go:build linux

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"sluice/internal/testkit"
)

// BinaryVariable names the environment variable with the path of the binary
// under test.
const BinaryVariable = "SLUICE_BINARY"

// Binary returns the path of the kube-proxy binary: the one that BinaryVariable
// names, or else one built from this module, once for the process.
func Binary() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return filepath.Abs(path)
	}
	return buildOnce()
}

var buildOnce = sync.OnceValues(func() (string, error) { return Build("sluice/cmd/kube-proxy") })

// Build builds a command of this module and returns its path. Sweep removes it, since
// its last user is not known.
func Build(pkg string) (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-*-binary", namePrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	testkit.Progress("building %s", pkg)
	// What debuggers want would take the linker half of its time, and a guest memory.
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return path, nil
}
