package main

import (
	"fmt"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/dataplane/nftables"
	"sluice/test/lab/scenario"
)

// open opens the dataplane of a mode in this network namespace.
func open(mode string) (dataplane.Dataplane, error) {
	switch mode {
	case "nftables":
		return nftables.New(nftables.Options{Logger: logr.Discard()})
	case "iptables-nft":
		return iptables.New(iptables.Options{Logger: logr.Discard(), Variant: iptables.NFT})
	case "iptables-legacy":
		return iptables.New(iptables.Options{Logger: logr.Discard(), Variant: iptables.Legacy})
	}
	return nil, fmt.Errorf("unknown mode %q: have %v", mode, scenario.ModeNames())
}
