//go:build linux

package lab_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// An endpoint that vanishes leaves clients in every state.
func TestClientsOfVanishedEndpointAreReset(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--reset-removed-endpoints"}})
	settle(t, p, dir, 0)
	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80"), Timeout: testkit.Timeout}
	waiting, err := l.Open(flow)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if _, err := waiting.Ask(); err != nil {
		t.Fatal(err)
	}

	pod, err := l.Host("pod1")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := pod.Run(t.Context(), lab.Command{Args: []string{"ip", "link", "set", "eth0", "down"}}); err != nil {
		t.Fatal(err, out)
	}
	opened := make(chan lab.Outcome)
	go func() { opened <- l.Connect(t.Context(), flow) }()
	eventually(t, func() bool { // the node has passed the SYN on
		return strings.Contains(tracked(t, l), "SYN_SENT")
	})
	mark := p.Log().Len()
	write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
	settle(t, p, dir, mark)
	if err := waiting.Listen(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client that waits learns: %v", err)
	}
	if o := <-opened; o.Kind != lab.Answered || o.By != "pod2" {
		t.Errorf("the client that connects is %v, want answered by pod2", o)
	}
}

// tracked lists the TCP connections that node1 knows.
func tracked(t *testing.T, l *lab.Lab) string {
	t.Helper()
	node, err := l.Host("node1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.Run(t.Context(), lab.Command{Args: []string{"conntrack", "-L", "-p", "tcp"}})
	if err != nil {
		t.Fatal(err, out)
	}
	return out
}

// Without CAP_NET_RAW the proxy cannot provoke idle clients: they notice the reset
// when they next send, and the log names the missing capability.
func TestResetWithoutNetRaw(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	asNobody, manifests := unprivileged(t)
	p := launch(t, l, lab.ProxyOptions{
		Binary: asNobody("+net_admin"), Manifests: manifests, Flags: []string{"--reset-removed-endpoints"},
	})
	settle(t, p, manifests, 0)
	s, err := l.Open(lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80"), Timeout: lab.ShortTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Ask(); err != nil {
		t.Fatal(err)
	}

	mark := p.Log().Len()
	write(t, manifests, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
	settle(t, p, manifests, mark)
	eventually(t, func() bool { return strings.Contains(p.Log().String(), "give the proxy the capability NET_RAW") })
	if err := s.Listen(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it waits, the client learns: %v", err)
	}
	if _, err := s.Ask(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("when it sends, the client learns: %v", err)
	}
}
