//go:build linux

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// leftoversOf lists the names under which a lab is still visible.
func leftoversOf(l *Lab) []string {
	names, _ := filepath.Glob(filepath.Join(mountDir, l.prefix+"*"))
	return names
}

func TestSweepRemovesDeadLabs(t *testing.T) {
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	dead := namePrefix + strconv.Itoa(child.Process.Pid) + "-0-"
	ns, err := newNamespace(dead + "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.close() })
	dir := filepath.Join(os.TempDir(), dead+"dir")
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	mine := t.TempDir()
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ns.path(), dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("a directory of the living is gone: %v", err)
	}
}
