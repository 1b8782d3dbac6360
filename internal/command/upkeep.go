package command

import (
	"context"
	"net"

	"sluice/internal/config"
	"sluice/internal/engine"
	"sluice/internal/evidence"
	"sluice/internal/model"
)

// upkeep is what a mode asks for besides its dataplane. Its methods are called in this
// order, tune also when the configuration changes.
type upkeep interface {
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
	// advisories are what interferes with Services on this node.
	advisories() []model.Problem
	// answers returns what traffic shows of an endpoint; nil if nothing can be seen.
	answers() func(evidence.To) evidence.Report
	// allAnswers returns what it shows of all of them.
	allAnswers() map[evidence.To]evidence.Report
}

// withoutKernel is the upkeep of a proxy that leaves the kernel alone.
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
func (withoutKernel) advisories() []model.Problem { return nil }

func (withoutKernel) answers() func(evidence.To) evidence.Report  { return nil }
func (withoutKernel) allAnswers() map[evidence.To]evidence.Report { return nil }
