//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Command is a command to run on a host.
type Command struct {
	Args  []string
	Input string // on its standard input
	Dir   string // to run in; empty for the current directory
}

// Run runs a command in a host's namespace and returns what it printed, also if it failed.
func (h *Host) Run(ctx context.Context, c Command) (string, error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, strings.NewReader(c.Input), &output, &output
	err := h.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return output.String(), fmt.Errorf("run %q on %s: %w\n%s", strings.Join(c.Args, " "), h.Name, err, output.String())
	}
	return output.String(), nil
}

// start starts a command in the namespace. It dies with the namespace's thread,
// and thus with this process, however that ends.
func (n *Namespace) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(cmd.Environ(), "XTABLES_LOCKFILE="+n.XtablesLock())
	return n.Do(cmd.Start)
}

// XtablesLock is the file that legacy iptables locks. Every machine has one;
// here, where all share the file system, every namespace has.
func (n *Namespace) XtablesLock() string {
	return filepath.Join(os.TempDir(), n.Name+"-xtables.lock")
}
