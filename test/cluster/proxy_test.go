package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"sluice/test/lab"
)

// proxy is a kube-proxy that runs on a host.
type proxy struct {
	cmd  *exec.Cmd
	log  string        // path
	done chan struct{} // closed when it has ended
	err  error         // how it ended
}

// run starts a process on a host. It dies with the host's thread, and thus with
// this process, however that ends.
func run(host *lab.Host, log string, command ...string) (*proxy, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	p := &proxy{cmd: exec.Command(command[0], command[1:]...), log: log, done: make(chan struct{})}
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

// kill ends the proxy at once, if it still runs.
func (p *proxy) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// logged reports whether a text is in the log.
func (p *proxy) logged(text string) error {
	log, err := os.ReadFile(p.log)
	if err == nil && !strings.Contains(string(log), text) {
		err = fmt.Errorf("the log does not have %q", text)
	}
	return err
}

// tail returns the end of the log.
func (p *proxy) tail() string {
	const enough = 8 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
