package dataplanetest

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/plan"
)

// SuiteOptions configures Suite.
type SuiteOptions struct {
	// Seed is that of the random histories.
	Seed uint64
	// Histories is for how long they are tried.
	Histories time.Duration
}

// Suite runs the tests that every mode passes, in each of its variants, in network
// namespaces of their own. What a mode lacks is not tested: the optional functions
// of its Mode, and the optional interfaces of its Dataplane. A mode with Remove
// keeps something in the kernel, which Dump shows.
func Suite(t *testing.T, m dataplane.Mode, o SuiteOptions) {
	t.Run("fields", func(t *testing.T) { checkFields(t, m) })
	if m.Render != nil {
		t.Run("render", func(t *testing.T) { checkRender(t, m) })
	}
	if err := supported(t, m); err != nil {
		t.Skip(err)
	}
	if m.Variants == nil {
		(&suite{mode: m, SuiteOptions: o}).run(t)
	}
	for _, variant := range m.Variants {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			(&suite{mode: m, variant: variant, SuiteOptions: o}).run(t)
		})
	}
}

// supported returns why the kernel of this machine lacks what the mode needs.
func supported(t *testing.T, m dataplane.Mode) error {
	d, err := m.Open(t.Context(), dataplane.Options{Logger: logr.Discard(), NetNS: netnstest.New(t).FD()})
	if err == nil {
		return d.Close()
	}
	if errors.Is(err, dataplane.ErrUnsupported) {
		return err
	}
	return nil // it may need a variant
}

// suite tests a mode in one variant.
type suite struct {
	mode    dataplane.Mode
	variant string
	SuiteOptions
}

func (s *suite) run(t *testing.T) {
	t.Run("reconcile", s.testReconcile)
	t.Run("apply", s.testApply)
	t.Run("history", s.testHistory)
	t.Run("restart", s.testRestart)
	t.Run("close", s.testClose)
	t.Run("refused", s.testRefused)
	t.Run("family", s.testUnservedFamily)
	t.Run("verify", s.testVerifyWhileChanging)
	t.Run("counters", s.testCounters)
	if s.programs() {
		t.Run("foreign", s.testForeignChange)
		t.Run("remove", s.testRemove)
	}
	d := s.newNode(t).open()
	if _, ok := d.(dataplane.Describer); ok {
		t.Run("describe", s.testDescribe)
	}
	if _, ok := d.(dataplane.TrafficReader); ok {
		t.Run("traffic", s.testTraffic)
	}
	if _, ok := d.(dataplane.ProgressReporter); ok {
		t.Run("progress", s.testProgress)
	}
}

func (s *suite) variety() *plan.Desired { return variety(s.mode) }

// variety is Variety as plan makes it for a mode.
func variety(m dataplane.Mode) *plan.Desired {
	d := Variety()
	var config plan.Config
	if m.Adjust != nil {
		m.Adjust(&config)
	}
	if config.Balancer == (plan.Balancer{}) {
		return d
	}
	d.Settings.ExclusiveIPs, d.ExclusiveIPs = true, map[netip.Addr]int{}
	for _, f := range d.Frontends {
		if f.Affinity == 0 {
			f.Route.Balancer = &config.Balancer
		}
		if f.Exclusive() {
			d.ExclusiveIPs[f.Addr]++
		}
	}
	return d
}

// node is a network namespace with dataplanes of the mode.
type node struct {
	*suite
	t  testing.TB
	ns *netnstest.Namespace
}

func (s *suite) newNode(t testing.TB) *node {
	t.Helper()
	n := &node{s, t, netnstest.New(t)}
	n.ns.Run(t, "", "ip", "link", "set", "lo", "up")
	return n
}

// open opens a dataplane, which is closed when the test ends.
func (n *node) open() dataplane.Dataplane {
	n.t.Helper()
	d, err := n.mode.Open(n.t.Context(), dataplane.Options{
		Logger: logr.Discard(), Variant: n.variant, NetNS: n.ns.FD(),
		// The same on every node, which is compared.
		ModeSettings: dataplane.ModeSettings{Ports: dataplane.PortRange{First: 41_000, Last: 41_999}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { d.Close() })
	return d
}

// reconciled opens a dataplane and has it program what is desired.
func (n *node) reconciled(desired *plan.Desired) dataplane.Dataplane {
	n.t.Helper()
	d := n.open()
	if r := OK(n.t, d.Reconcile(n.t.Context(), desired)); r.Transactions == 0 && n.programs() {
		n.t.Fatal("Reconcile wrote nothing into an empty kernel")
	}
	return d
}

// programs reports whether the mode keeps something in the kernel.
func (s *suite) programs() bool { return s.mode.Remove != nil }

// remove removes what the mode keeps in the kernel, but for what is running.
func (n *node) remove(running dataplane.Dataplane) {
	n.t.Helper()
	if !n.programs() {
		return
	}
	err := n.ns.Do(func() error {
		return n.mode.Remove(n.t.Context(), dataplane.RemoveOptions{Logger: logr.Discard(), Running: running})
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// holds fails the test unless the dataplane, and one that was just opened, find
// what is desired in the kernel.
func (n *node) holds(d dataplane.Dataplane, desired *plan.Desired) {
	n.t.Helper()
	if good, err := d.Verify(n.t.Context()); err != nil || !good {
		n.t.Errorf("Verify says %v, %v", good, err)
	}
	if _, forwards := d.(dataplane.Forwarder); forwards {
		return // another one has other sockets
	}
	second := n.open()
	defer second.Close()
	if r := OK(n.t, second.Reconcile(n.t.Context(), desired)); r.Transactions != 0 {
		n.t.Errorf("a second dataplane wrote %d transactions with %d elements", r.Transactions, r.Elements)
	}
}

// same fails the test unless the kernel is as it was.
func (n *node) same(before string) {
	n.t.Helper()
	if after := n.dump(); after != before {
		n.t.Errorf("the kernel held\n%s\nand now holds\n%s", before, after)
	}
}
