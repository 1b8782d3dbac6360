//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"sluice/internal/model"
	"sluice/internal/observe/conntrack/conntracktest"
)

// answer is the answer of a worker to an order.
type answer struct {
	Took    time.Duration // until the commit, or until the table was clean
	Seen    int           // entries looked at by the pass that cleaned
	Deleted int           // entries deleted by all passes
	Entries int           // in the table
	Memory  int64         // bytes resident that sweeping took
	Err     string
}

// proxy is a worker in its own process and network namespace.
type proxy struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	encoder *json.Encoder
	answers *json.Decoder
}

func startProxy() (*proxy, error) {
	p := &proxy{cmd: exec.Command("/proc/self/exe", "-worker")}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	orders, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.encoder, p.answers = orders, json.NewEncoder(orders), json.NewDecoder(answers)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = p.do("count") // it is ready
	return p, err
}

// do sends an order and waits for the answer.
func (p *proxy) do(order string) (answer, error) {
	var a answer
	if err := p.encoder.Encode(order); err != nil {
		return a, fmt.Errorf("%s: %w", order, err)
	}
	if err := p.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("%s: %w", order, err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("%s: %w", order, errors.New(a.Err))
	}
	return a, nil
}

func (p *proxy) stop() {
	p.orders.Close()
	_ = p.cmd.Wait() // it has nothing more to say
}

// fill writes entries into the table of the proxy's node.
func (p *proxy) fill(foreign, stale int) error {
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer netns.Close()
	return conntracktest.Fill(int(netns.Fd()), func(yield func(conntracktest.Entry) bool) {
		for i := range uint32(foreign) {
			// Half of them are translated.
			to := netip.AddrPortFrom(ipv4(firstStranger+i>>8), 53)
			by := to
			if i%2 == 0 {
				by = netip.AddrPortFrom(ipv4(firstTranslated+i>>8), 53)
			}
			if !yield(conntracktest.Entry{From: client(i), To: to, By: by, Protocol: model.UDP}) {
				return
			}
		}
		to, by := netip.AddrPortFrom(ipv4(firstClusterIP), port), netip.AddrPortFrom(ipv4(firstPodIP), targetPort)
		for i := range uint32(stale) {
			if !yield(conntracktest.Entry{From: client(i), To: to, By: by, Protocol: model.UDP}) {
				return
			}
		}
	})
}

const (
	firstClient     = 0x64400001 // 100.64.0.1
	firstStranger   = 0xC6120001 // 198.18.0.1
	firstTranslated = 0xC6130001 // 198.19.0.1
)

// client returns a different client for each number.
func client(n uint32) netip.AddrPort {
	return netip.AddrPortFrom(ipv4(firstClient+n%1024), uint16(1024+n/1024))
}
