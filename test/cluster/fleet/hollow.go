package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// hollows are upstream's hollow proxies, in a process of their own.
type hollows struct {
	*cluster
	cmd     *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
	way     *counter
}

// measureKubemark prints what upstream's hollow proxies cost: their start, changes, and a restart.
func (c *cluster) measureKubemark(ctx context.Context, binary string) error {
	for _, n := range c.nodes {
		if err := c.measureHollow(ctx, binary, n); err != nil {
			return fmt.Errorf("%d hollow proxies of upstream: %w", n, err)
		}
	}
	return nil
}

func (c *cluster) measureHollow(ctx context.Context, binary string, n int) error {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.server.PID()), []byte("5"), 0) // the peak of memory begins anew
	before, err := cpuTime(c.server.PID())
	if err != nil {
		return err
	}
	begin := time.Now()
	h, err := c.startHollows(ctx, binary, n)
	if err != nil {
		return err
	}
	defer h.stop()
	if err := h.expect("synced"); err != nil {
		return err
	}
	start, bytes := time.Since(begin), h.way.bytes.Load()
	started, err := cpuTime(c.server.PID())
	if err != nil {
		return err
	}
	peak, err := memory(c.server.PID(), "VmHWM:")
	if err != nil {
		return err
	}
	begin = time.Now()
	changes, err := c.changeFor(ctx, c.time)
	if err == nil {
		err = h.await(c.changes.count() - 1)
	}
	if err != nil {
		return err
	}
	took, moved := time.Since(begin), h.way.bytes.Load()-bytes
	changed, err := cpuTime(c.server.PID())
	if err != nil {
		return err
	}
	fmt.Printf("%d hollow proxies of upstream: in sync after %.2f s, API server %.2f s of CPU time, at most %.0f MB, %.3f MB each; "+
		"changes: %.2f cores, %.2f kB each\n", n, start.Seconds(), (started - before).Seconds(), peak, float64(bytes)/1e6/float64(n),
		(changed-started).Seconds()/took.Seconds(), float64(moved)/1e3/float64(n*changes))
	if !c.restart {
		return nil
	}
	begin = time.Now()
	if err := c.server.Kill(); err != nil {
		return err
	}
	if err := c.server.Restart(ctx); err != nil {
		return err
	}
	last, err := c.change(ctx, 1)
	if err == nil {
		err = h.await(last)
	}
	if err != nil {
		return err
	}
	recovered := time.Since(begin)
	restarted, err := cpuTime(c.server.PID())
	if err != nil {
		return err
	}
	fmt.Printf("  API server killed: all follow it after %.2f s, %.2f s of CPU time\n", recovered.Seconds(), restarted.Seconds())
	return nil
}

func (c *cluster) startHollows(ctx context.Context, binary string, n int) (*hollows, error) {
	way, err := newCounter(c.server.Addr().String())
	if err != nil {
		return nil, err
	}
	file, err := clientcmd.LoadFromFile(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, cluster := range file.Clusters {
		cluster.Server = "https://" + way.listener.Addr().String()
	}
	kubeconfig := c.kubeconfig + "-counted"
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		return nil, err
	}
	h := &hollows{cluster: c, way: way, cmd: exec.CommandContext(ctx, binary, "hollow", kubeconfig, strconv.Itoa(n))}
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h.ask, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.answers = bufio.NewScanner(out)
	return h, h.cmd.Start()
}

func (h *hollows) expect(word string) error {
	if !h.answers.Scan() || h.answers.Text() != word {
		return fmt.Errorf("they say %q, want %q: %w", h.answers.Text(), word, h.answers.Err())
	}
	return nil
}

// await waits until all have a change.
func (h *hollows) await(change int) error {
	if _, err := fmt.Fprintln(h.ask, changeAddress(change)); err != nil {
		return err
	}
	return h.expect("seen")
}

func (h *hollows) stop() {
	h.ask.Close()
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
	h.way.listener.Close()
}

// counter forwards connections and counts what comes back.
type counter struct {
	listener net.Listener
	to       string
	bytes    atomic.Int64
}

func newCounter(to string) (*counter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{listener: l, to: to}
	go c.run()
	return c, nil
}

func (c *counter) run() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.forward(near)
	}
}

func (c *counter) forward(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, near)
		far.Close()
	}()
	_, _ = io.Copy(countingWriter{near, &c.bytes}, far)
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.n.Add(int64(n))
	return n, err
}
