//go:build linux

package nftables

import (
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Target takes the connections of routes that are delegated (plan.Route.Delegated), which have no
// endpoints in the table. Modes that build on the table bring their own.
type Target struct {
	// Name is the name of the chain that leads to the target.
	Name string
	// Input is a base chain for packets that are delivered to the node.
	Input nft.Chain
	// Rules returns the rules of a family. It is called where settings are taken over, and
	// the rules stay until the next time.
	Rules func(model.Family, *plan.Settings) TargetRules
}

// TargetRules are the rules of a Target, without chains and tags.
type TargetRules struct {
	// Route and Outside lead connections to the target, which take these routes of a
	// frontend. If there are none, connections are rejected.
	Route, Outside []nft.Rule
	// Input are the rules of the base chain, which only exists if there are some.
	Input []nft.Rule
}

// tableSettings is what rules depend on besides their chain.
type tableSettings struct {
	plan.Settings
	target TargetRules
	blocks blockLengths // of ranges
}

// input returns the base chain of the target, no chain if there is no target.
func (t *Target) input() chain {
	if t == nil {
		return chain{}
	}
	return chain{kind: targetInput, target: t}
}

// RejectUnserved returns rules that reject new connections to addresses of Services where
// there is no frontend, for the base chain of a target that such packets pass.
func RejectUnserved(f model.Family) []nft.Rule {
	l := layouts[f]
	unserved := anyPacket.New().In(exclusiveIPs, nft.Concat{l.dest}).NotToLocal()
	return []nft.Rule{
		{Exprs: anyPacket.New().Jump(chain{kind: unknown}.name())},
		{Exprs: unserved.Verdict(verdictTo(chain{kind: reject}.name()))},
	}
}
