//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"sluice/internal/testkit"
)

// ProxyOptions configures a proxy.
type ProxyOptions struct {
	// Binary is its path; Binary() if empty.
	Binary string
	// Node is where it runs; node1 if empty.
	Node string
	// Manifests is the directory of objects.
	Manifests string
	// Flags are added to those for its node and directory.
	Flags []string
	// Env is added to the environment, as NAME=VALUE.
	Env []string
}

// Proxy is a kube-proxy that runs on a node.
type Proxy struct {
	log  *Log
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	err  error         // how it ended
}

// StartProxy starts the proxy on its node. It is stopped when the lab is closed,
// if not before.
func (l *Lab) StartProxy(o ProxyOptions) (*Proxy, error) {
	if o.Binary == "" {
		path, err := Binary()
		if err != nil {
			return nil, err
		}
		o.Binary = path
	}
	if o.Node == "" {
		o.Node = "node1"
	}
	// Labs share the file system, and thus the place of the control socket.
	flags := append([]string{"--manifests", o.Manifests, "--hostname-override", o.Node, "-v", "2", "--control-socket", ""}, o.Flags...)
	p := &Proxy{log: newLog(), cmd: exec.Command(o.Binary, flags...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = append(p.cmd.Environ(), o.Env...)
	if err := l.hosts[o.Node].start(p.cmd); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	l.onClose(p.Kill)
	return p, nil
}

// PID returns the process id of the proxy, or of the command that runs it.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Hangup sends SIGHUP to the proxy.
func (p *Proxy) Hangup() error { return p.signal(syscall.SIGHUP) }

// Log returns what the proxy has logged so far.
func (p *Proxy) Log() *Log { return p.log }

// Kill ends the proxy at once (kill -9), if it still runs.
func (p *Proxy) Kill() error { return p.end(syscall.SIGKILL) }

// Stop asks the proxy to exit, and kills it after a while if it does not.
func (p *Proxy) Stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := testkit.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("proxy stopped: %w", p.err)
		}
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("proxy does not stop when asked to"), p.Kill())
	}
}

func (p *Proxy) end(s syscall.Signal) error {
	if err := p.signal(s); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal ignores that the process is gone already.
func (p *Proxy) signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, syscall.ESRCH) && !isGone(err) {
		return fmt.Errorf("signal proxy: %w", err)
	}
	return nil
}

// overtaken is how long to wait for the commit after a load if there may be none,
// because nothing changed or the commit was logged before the load.
const overtaken = 200 * time.Millisecond

// WaitFor waits until the proxy has loaded the manifests with this digest,
// looking only at log lines from the mark on, and has programmed them.
func (p *Proxy) WaitFor(ctx context.Context, digest string, mark int) error {
	load := func(lines []string) int {
		return slices.IndexFunc(lines, func(line string) bool { return isLoaded(line, digest) })
	}
	if err := p.await(ctx, mark, func(lines []string) bool { return load(lines) >= 0 }); err != nil {
		return fmt.Errorf("wait until the manifests %.12s are loaded: %w", digest, err)
	}
	programmed := func(lines []string) bool { return slices.ContainsFunc(lines[load(lines):], isProgrammed) }
	lines, _ := p.log.From(mark)
	if loaded := load(lines); !isUnchanged(lines[loaded]) && !slices.ContainsFunc(lines[:loaded], isProgrammed) {
		return p.await(ctx, mark, programmed)
	}
	settle, cancel := testkit.WithTimeout(ctx, overtaken)
	defer cancel()
	err := p.await(settle, mark, programmed)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

// await waits until the log lines from the mark on satisfy a condition.
func (p *Proxy) await(ctx context.Context, mark int, holds func([]string) bool) error {
	for {
		lines, more := p.log.From(mark)
		if holds(lines) {
			return nil
		}
		select {
		case <-more:
		case <-p.done:
			return fmt.Errorf("proxy is gone: %w", errors.Join(p.err, errGone))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
