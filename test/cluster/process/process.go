// Package process runs programs on hosts of a lab: kube-proxies, ours and upstream's.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Process is a program that runs on a host.
type Process struct {
	Cmd  *exec.Cmd
	Log  string        // path of what it prints
	Done chan struct{} // closed when it has ended
	Err  error         // how it ended
}

// Start starts a program on a host, and appends what it prints to a file. It dies with the
// host's thread, and thus with this process, however that ends.
func Start(host *lab.Host, log string, command ...string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &Process{Cmd: exec.Command(command[0], command[1:]...), Log: log, Done: make(chan struct{})}
	p.Cmd.Stdout, p.Cmd.Stderr = output, output
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := host.Do(p.Cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		p.Err = p.Cmd.Wait()
		close(p.Done)
	}()
	return p, nil
}

// Stop asks the program to end, as kubelet does, and kills it if it does not.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := testkit.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	select {
	case <-p.Done:
		return nil
	case <-ctx.Done():
		return p.Kill()
	}
}

// Kill ends the program at once, if it still runs.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done
	return nil
}

func (p *Process) signal(s os.Signal) error {
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Logged returns an error unless the program has printed a text.
func (p *Process) Logged(text string) error {
	log, err := os.ReadFile(p.Log)
	if err == nil && !strings.Contains(string(log), text) {
		err = fmt.Errorf("the log does not have %q", text)
	}
	return err
}

// Tail returns the end of what the program printed.
func (p *Process) Tail() string {
	const enough = 8 << 10
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}

// Memory returns a line of the program's /proc/PID/status, such as "VmRSS:", in MB.
func (p *Process) Memory(key string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/PID/status", key)
}
