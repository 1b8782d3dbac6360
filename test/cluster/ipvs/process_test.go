//go:build guest

package ipvs

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"sluice/test/lab"
)

// process is a program that runs on a host.
type process struct {
	cmd  *exec.Cmd
	log  string        // path
	done chan struct{} // closed when it has ended
	err  error         // how it ended
}

// startProcess starts a program on a host. It dies with the host's thread, and thus with
// this process, however that ends.
func startProcess(host *lab.Host, log string, command ...string) (*process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &process{cmd: exec.Command(command[0], command[1:]...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := host.Do(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// stop asks the program to end, as kubelet does, and kills it if it does not.
func (p *process) stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(30 * time.Second):
		return p.kill()
	}
}

// kill ends the program at once, if it still runs.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// output returns what the program printed.
func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
