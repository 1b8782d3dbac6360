package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"sluice/internal/testkit"
)

// process is a child process, with its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // path
	done chan struct{} // closed when it has ended
	err  error         // how it ended
}

// start starts a process. Its output is added to the log.
func start(name, path, log string, args []string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(path, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	// It does not live long enough for its garbage to matter.
	p.cmd.Env = append(os.Environ(), "GOGC=400")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.attend(output, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// attend starts the process and waits for its end, all on one thread: to the
// kernel, the parent whose death kills the child is a thread, and Go may end
// threads that goroutines have locked.
func (p *process) attend(output *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer output.Close()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
	close(p.done)
}

// endTime is how long a process has to end after a signal.
const endTime = time.Minute

// kill kills the process.
func (p *process) kill() error { return p.end(syscall.SIGKILL) }

// stop asks the process to exit, and kills it after a timeout.
func (p *process) stop() error {
	err := p.end(syscall.SIGTERM)
	if err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// end sends a signal and waits for the exit. It is no error if the process has
// already exited.
func (p *process) end(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	ctx, cancel := testkit.WithTimeout(context.Background(), endTime)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not end after %v", p.name, signal)
	}
}

// await polls readiness until there is no error, the process has exited or the
// context is done.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended: %w\n%s", p.name, errors.Join(p.err, err), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tail returns the end of the log.
func (p *process) tail() string {
	const enough = 4 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
