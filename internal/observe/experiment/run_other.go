//go:build !linux

package experiment

import (
	"context"
	"errors"
	"net/netip"

	"sluice/internal/model"
)

var errElsewhere = errors.New("connections are tried on Linux only")

// Namespace is a network namespace, which only Linux has.
type Namespace struct{}

func (Namespace) String() string                  { return "this node" }
func (Namespace) Node() bool                      { return true }
func (Namespace) Close()                          {}
func (Namespace) Address(model.Family) netip.Addr { return netip.Addr{} }

// Open fails.
func Open(string) (Namespace, error) { return Namespace{}, errElsewhere }

// Having fails.
func Having(netip.Addr) (Namespace, error) { return Namespace{}, errElsewhere }

// Run says that it is not possible.
func (*Runner) Run(_ context.Context, a Attempt) *Result {
	return &Result{Outcome: Untried, From: a.From.String(), To: a.To, Protocol: a.Protocol.String(), Error: errElsewhere.Error()}
}
