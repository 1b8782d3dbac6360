//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// namePrefix starts the name of everything a lab leaves outside its process:
// namespaces and directories are called sluice-lab-<pid>-<random>-<what>.
const namePrefix = "sluice-lab-"

// Sweep removes the namespaces and temporary directories of labs whose process is
// gone, as a killed test run leaves them.
func Sweep() error {
	var errs []error
	for _, path := range leftovers(mountDir) {
		errs = append(errs, removeMount(path))
	}
	for _, path := range leftovers(os.TempDir()) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// leftovers lists what dead labs left in a directory.
func leftovers(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, namePrefix+"*")) // the pattern is well formed
	var dead []string
	for _, path := range paths {
		if pid, ok := ownerOf(filepath.Base(path)); ok && !running(pid) {
			dead = append(dead, path)
		}
	}
	return dead
}

// ownerOf reads the process id from a name.
func ownerOf(name string) (pid int, ok bool) {
	id, _, found := strings.Cut(strings.TrimPrefix(name, namePrefix), "-")
	pid, err := strconv.Atoi(id)
	return pid, found && err == nil
}

func running(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
