package proxy

import (
	"context"
	"net"

	"sluice/internal/answer/status"
	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/nodeproblem"
)

// hostSetup is what a mode asks for besides its dataplane. Its methods are called in this
// order, tune also when the configuration changes.
type hostSetup interface {
	// lacksIPv6 returns why IPv6 cannot be used on this node, "" if it can.
	lacksIPv6(context.Context) string
	// tune applies settings of the kernel, and changes those of the proxy that depend
	// on the kernel's.
	tune(*config.Settings)
	// begin warns of what an earlier proxy may have left.
	begin()
	// assemble is called once there is an engine, and returns who observes it.
	assemble() []engine.Observer
	run(context.Context) error
	// look finds out what is wrong with this node now.
	look(context.Context)
	// advisories are what the last look found wrong with settings of the kernel, and with
	// rules of other programs.
	advisories() (settings, rules []model.Problem)
	// blocked returns what keeps connections on a path from being answered, nil if nothing does.
	blocked(nodeproblem.Path) *nodeproblem.Obstacle
	// answers returns what traffic shows of an endpoint, and of one at some ports together; nil if nothing can be
	// seen.
	answers() (func(evidence.To) evidence.Report, func(evidence.To, model.PortRange) evidence.Report)
	// observed adds to that what the proxy itself met there.
	observed(dataplane.Attempt)
	// seen returns how old that is, nil if nothing can be seen.
	seen() *status.Evidence
	// flowTable returns what flow tables do, nil if they are off.
	flowTable() *status.FlowTable
	// received returns how many connections each other node has handed to this one for direct return.
	received() map[string]uint64
	// allAnswers returns what it shows of all of them.
	allAnswers() map[evidence.To]evidence.Report
}

// withoutKernel is the host setup of a proxy that leaves the kernel alone.
type withoutKernel struct{}

func (withoutKernel) lacksIPv6(context.Context) string {
	conn, err := net.ListenUDP("udp6", nil)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close() // it was never used
	return ""
}

func (withoutKernel) tune(*config.Settings)       {}
func (withoutKernel) begin()                      {}
func (withoutKernel) assemble() []engine.Observer { return nil }
func (withoutKernel) run(context.Context) error   { return nil }
func (withoutKernel) look(context.Context)        {}

func (withoutKernel) advisories() (settings, rules []model.Problem)  { return nil, nil }
func (withoutKernel) blocked(nodeproblem.Path) *nodeproblem.Obstacle { return nil }

func (withoutKernel) answers() (func(evidence.To) evidence.Report, func(evidence.To, model.PortRange) evidence.Report) {
	return nil, nil
}
func (withoutKernel) observed(dataplane.Attempt)                  {}
func (withoutKernel) seen() *status.Evidence                      { return nil }
func (withoutKernel) flowTable() *status.FlowTable                { return nil }
func (withoutKernel) received() map[string]uint64                 { return nil }
func (withoutKernel) allAnswers() map[evidence.To]evidence.Report { return nil }
