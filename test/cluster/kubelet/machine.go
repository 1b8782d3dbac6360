package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sluice/test/lab"
)

// boot runs as the first process of a machine. The container runtime needs one
// cgroup hierarchy at the usual path, and many machines have several there.
const boot = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo up
exec sleep infinity`

// Machine is a node of a lab with its own processes and mounts.
type Machine struct {
	host    *lab.Host
	dir     string // for images, volumes and containers
	first   *exec.Cmd
	started int // containers so far
}

// Boot turns a host into a machine. The caller must Shutdown it.
func Boot(host *lab.Host) (*Machine, error) {
	m := &Machine{host: host, first: exec.Command("sh", "-c", boot)}
	var complaint strings.Builder
	m.first.Stderr = &complaint
	// The kernel ends all processes of a PID namespace with its first one.
	m.first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	output, err := m.first.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := host.Do(m.first.Start); err != nil {
		return nil, fmt.Errorf("boot %s: %w", host.Name, err)
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		err = errors.Join(err, m.Shutdown())
		return nil, fmt.Errorf("boot %s: %w\n%s", host.Name, err, complaint.String())
	}
	// By this name, lab.Sweep finds what a killed test leaves.
	if m.dir, err = os.MkdirTemp("", fmt.Sprintf("sluice-lab-%d-*-machine", os.Getpid())); err != nil {
		return nil, errors.Join(err, m.Shutdown())
	}
	return m, nil
}

// Shutdown ends everything that runs on the machine, and removes its files.
func (m *Machine) Shutdown() error {
	if err := m.first.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	m.first.Wait() // it was killed, and says so
	if m.dir == "" {
		return nil
	}
	return os.RemoveAll(m.dir)
}

// Enter returns the command line that runs a command on the machine, to be run on
// the machine's host.
func (m *Machine) Enter(command ...string) []string {
	pid := strconv.Itoa(m.first.Process.Pid)
	return append([]string{"nsenter", "--target", pid, "--mount", "--pid", "--"}, command...)
}

// run runs a command on the machine and returns what it printed.
func (m *Machine) run(ctx context.Context, command ...string) (string, error) {
	return m.host.Run(ctx, lab.Command{Args: m.Enter(command...)})
}

// runtime is the command line of the container runtime.
func (m *Machine) runtime(command ...string) []string {
	return append([]string{"crun", "--root", m.path("crun"), "--cgroup-manager=disabled"}, command...)
}

func (m *Machine) path(names ...string) string {
	return filepath.Join(append([]string{m.dir}, names...)...)
}
