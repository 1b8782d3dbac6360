//go:build linux

package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/engine"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/observe/conntrack/conntracktest"
	"sluice/internal/plan"
	"sluice/internal/source/host"
)

// namespace is a network namespace of a test's own, with a connection tracking
// table of its own.
type namespace struct {
	*netnstest.Namespace
	t testing.TB
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{netnstest.New(t), t}
}

// do runs f in the namespace.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	if err := n.Do(f); err != nil {
		n.t.Fatal(err)
	}
}

// shell runs commands in the namespace.
func (n *namespace) shell(commands string) {
	n.t.Helper()
	n.Run(n.t, "", "sh", "-ec", commands)
}

// entry is one to be made in the table. Each has a client of its own.
type entry struct {
	name     string
	to, by   string
	protocol model.Protocol
	zone     uint16
	state    uint8 // of a TCP connection
}

// seen is how entries describes it.
func (e entry) seen() string {
	return fmt.Sprintf("%v to %s by %s, zoned %v", e.protocol, e.to, e.by, e.zone != 0)
}

// create makes entries, as if there had been traffic.
func (n *namespace) create(entries ...entry) {
	n.t.Helper()
	err := conntracktest.Fill(n.FD(), func(yield func(conntracktest.Entry) bool) {
		for i, e := range entries {
			to := addrPort(e.to)
			client := addr("198.51.100.1")
			if to.Addr().Is6() {
				client = addr("2001:db8:9::1")
			}
			from := netip.AddrPortFrom(client, uint16(i))
			if !yield(conntracktest.Entry{From: from, To: to, By: addrPort(e.by), Protocol: e.protocol, Zone: e.zone, TCPState: e.state}) {
				return
			}
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// entries lists what is in the table.
func (n *namespace) entries() []string {
	n.t.Helper()
	var list []string
	_, err := table{netns: n.FD()}.sweep(n.t.Context(), kinds{allUDP, allTCP}, func(f *flow) bool {
		list = append(list, fmt.Sprintf("%v to %v by %v, zoned %v", f.Protocol, f.To, f.By, f.Zoned))
		return false
	})
	if err != nil {
		n.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// counted is a Reconciler whose passes are counted.
type counted struct {
	*Reconciler
	counter
	engine fakeEngine
}

// reconciler runs one in the namespace, until the test ends.
func (n *namespace) reconciler(o Options) *counted {
	n.t.Helper()
	o.Logger, o.NetNS, o.IsLocal = logr.Discard(), n.FD(), host.IsLocal
	r := &counted{}
	o.Engine, o.OnPass = &r.engine, r.count
	r.Reconciler = New(o)
	done := make(chan error, 1)
	go func() { done <- r.Run(n.t.Context()) }()
	n.t.Cleanup(func() {
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	return r
}

// commit hands over a change, and waits for the pass that it needs.
func commit(t testing.TB, r *counted, change *plan.Change) {
	t.Helper()
	before := r.Stats()
	r.Committed(r.engine.commit(&engine.Commit{Kind: engine.Reconcile, Change: change}))
	for r.Stats().Passes == before.Passes {
		if t.Context().Err() != nil {
			t.Fatal("no pass")
		}
		time.Sleep(time.Millisecond)
	}
	if after := r.Stats(); after.Failures != before.Failures {
		t.Fatalf("a pass failed: %+v", after)
	}
}
