package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// statusStep describes how far the frontend is on its way into the kernel.
func (c *composer) statusStep() {
	s := c.status
	if s == nil {
		return
	}
	a := &StatusAnswer{Phase: s.Phase.String(), Since: s.Since, Revision: s.Revision, Attempts: s.Attempts, Retry: s.Retry}
	if s.Err != nil {
		a.Error = s.Err.Error()
	}
	c.answer.Status = a
	switch s.Phase {
	case engine.Programmed:
		c.step("status", "programmed %s ago, revision %d", c.ago(s.Since), s.Revision)
	case engine.Pending:
		c.step("status", "planned %s ago, not yet in %s, revision %d", c.ago(s.Since), c.system(), s.Revision)
	default:
		c.step("status", "refused by %s, %s, revision %d", c.system(), printable.Attempts(s.Attempts, s.Since, s.Retry, c.now), s.Revision)
	}
}

func (c *composer) ago(then time.Time) string { return printable.Duration(c.now.Sub(then)) }

// kernelStep describes what the kernel holds.
func (c *composer) kernelStep() {
	subject := c.system().Name()
	if c.kernelErr != nil {
		c.answer.Kernel = &KernelAnswer{Error: c.kernelErr.Error()}
		c.step(subject, "cannot be read: %s", c.kernelErr)
		return
	}
	k := c.kernel
	if k == nil {
		c.step(subject, "%s mode does not show what it holds for one frontend", c.mode)
		return
	}
	pool, size := c.kernelPool()
	a := &KernelAnswer{Of: c.system(), Present: k.Present, Endpoints: pool, Size: size}
	for _, o := range k.Objects {
		a.Objects = append(a.Objects, KernelObject(o))
	}
	if k.Counted {
		a.Connections, a.Refused = &k.Connections, &k.Refused
	}
	if r, found := c.remembered(); found {
		a.Remembered, a.ExpiresIn = r.Endpoint.String(), printable.Duration(r.Expires)
	}
	c.answer.Kernel = a
	if !k.Present {
		c.step(subject, "holds nothing for this frontend")
		return
	}
	what, endpoints := "verdict", printable.Count(size, "endpoint")
	if c.system() != "" {
		what = "load balancer"
	}
	if size == 0 {
		endpoints = "no endpoint"
	}
	holds := fmt.Sprintf("holds a %s for it, and %s", what, endpoints)
	if k.Counted {
		holds += fmt.Sprintf("; it has counted %s", printable.Count(int(k.Connections), "connection"))
		if k.Refused > 0 {
			holds += fmt.Sprintf(" and %s that it refused", printable.Count(int(k.Refused), "packet"))
		}
	}
	c.step(subject, "%s", holds)
}

// offloadStep describes what becomes of the connection once it is established.
func (c *composer) offloadStep() {
	if len(c.offloaded) == 0 || c.decision.Verdict != plan.Forward || c.packet.From == plan.NodeClient || c.packet.To.Protocol == model.SCTP {
		return
	}
	c.step("flow table", "after %d packets, those that come in at %s are forwarded past all rules", dataplane.OffloadAfter,
		printable.List(c.offloaded, func(name string) string { return name }))
}

// kernelPool returns the pool in the kernel that the packet takes.
func (c *composer) kernelPool() (endpoints []netip.AddrPort, size int) {
	if c.decision.Route == c.decision.Frontend.Outside {
		return c.kernel.Outside, c.kernel.OutsideSize
	}
	return c.kernel.Route, c.kernel.RouteSize
}

// inKernel reports whether the kernel does what was decided, as far as is known.
func (c *composer) inKernel() bool {
	if c.decision.Loopback {
		return true
	}
	if c.status == nil {
		return false
	}
	switch c.status.Phase {
	case engine.Programmed:
		return c.kernel == nil || c.kernel.Present
	case engine.Pending:
		if c.kernel == nil {
			return false
		}
		_, size := c.kernelPool()
		return c.kernel.Present && size > 0
	}
	return false
}

// programmingProblems adds problems of getting the frontend into the kernel.
func (c *composer) programmingProblems() {
	s := c.status
	if s == nil || c.decision.Loopback {
		return
	}
	switch {
	case s.Phase == engine.Failed:
		c.problem(string(verdict.ProgrammingFailed), "look at the error; the frontend is tried again by itself, and at once when the Service changes",
			"%s refused this frontend: %v", c.system(), s.Err)
	case s.Phase == engine.Pending && s.Err != nil:
		c.problem("pending", "look at the error; it is tried again by itself",
			"%s cannot be programmed at the moment: %v", c.system(), s.Err)
	case s.Phase == engine.Pending:
		c.problem("pending", "wait a moment and ask again; kube-proxy status shows how far it is",
			"the frontend is not in %s yet", c.system())
	case c.kernel != nil && c.differs():
		c.problem("kernel-differs", "ask again: what others changed is repaired by itself, at the latest after a sync period",
			"%s holds something else than was programmed", c.system())
	}
}

// differs reports whether the kernel holds other endpoints than it should.
func (c *composer) differs() bool {
	pool, size := c.kernelPool()
	want := c.decision.Route.Endpoints
	if !c.kernel.Present {
		return true
	}
	if c.decision.Cause == plan.SourceRanges {
		return false // a mode may leave out endpoints that no client may connect to
	}
	if size != len(want) {
		return true
	}
	if len(want) > dataplane.MaxDescribed {
		return false
	}
	return slices.ContainsFunc(want, func(e plan.Endpoint) bool { return !slices.Contains(pool, e.AddrPort) })
}

func notInSyncAnswer(q Question, s engine.Summary) Answer {
	waiting := printable.List(s.WaitingFor, func(name string) string { return name })
	return Answer{
		Verdict: verdict.Unknown, Cause: notInSync,
		Summary: "the proxy does not know the cluster yet",
		Packet:  PacketAnswer{From: cmp.Or(q.From, plan.PodClient.String())},
		Steps:   []Step{{"status", fmt.Sprintf("waiting for %s; what an earlier proxy programmed stays in force", waiting)}},
		Problems: []Advice{{
			Code:   notInSync,
			Text:   fmt.Sprintf("the proxy still waits for %s", waiting),
			Remedy: "kube-proxy status shows what it waits for, and the log of the proxy why",
		}},
	}
}
