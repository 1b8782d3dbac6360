package iptables

import (
	"bytes"
	"context"
	"slices"

	"sluice/internal/base/inet"
)

// Variant is one of the two implementations of iptables.
type Variant uint8

// The variants.
const (
	AutoVariant Variant = iota // the one that other programs on the host use
	Legacy
	NFT
)

func (v Variant) String() string { return [...]string{"auto", "legacy", "nft"}[v] }

// hintChains are created by kubelet in the variant that the host uses.
var hintChains = []string{":KUBE-IPTABLES-HINT ", ":KUBE-KUBELET-CANARY "}

// chooseVariant finds the commands of the variant that the host uses: the one with
// kubelet's hints, else the one with more rules, else the default of the installed
// iptables. Rules work in either, but a host that uses both confuses administrators.
func chooseVariant(ctx context.Context, netns int) (*Commands, error) {
	legacy, lerr := findVariant(ctx, Legacy, netns)
	nft, nerr := findVariant(ctx, NFT, netns)
	switch {
	case lerr != nil && nerr != nil:
		return nil, lerr
	case lerr != nil:
		return nft, nil
	case nerr != nil:
		return legacy, nil
	}
	usedNFT, err := nft.usage(ctx)
	if err != nil {
		return nil, err
	}
	usedLegacy, err := legacy.usage(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case usedNFT.hint:
		return nft, nil
	case usedLegacy.hint, usedLegacy.rules > usedNFT.rules:
		return legacy, nil
	case usedNFT.rules > usedLegacy.rules:
		return nft, nil
	case defaultVariant(ctx) == Legacy:
		return legacy, nil
	}
	return nft, nil
}

// defaultVariant is the variant of the commands without a suffix.
func defaultVariant(ctx context.Context) Variant {
	unnamed := newCommands(AutoVariant, 0)
	if unnamed.find("") != nil {
		return NFT
	}
	return unnamed.versionVariant(ctx)
}

// usage is how much a variant is used on the host.
type usage struct {
	hint  bool
	rules int
}

func (c *Commands) usage(ctx context.Context) (usage, error) {
	var u usage
	for f := range c.save {
		out, err := c.listAll(ctx, f)
		if err != nil && !Refused(err) {
			return u, err
		}
		u.hint = u.hint || slices.ContainsFunc(hintChains, func(h string) bool { return bytes.Contains(out, []byte(h)) })
		u.rules += bytes.Count(out, []byte("\n-A "))
	}
	return u, nil
}

// listAll lists all tables that exist.
func (c *Commands) listAll(ctx context.Context, f inet.Family) ([]byte, error) {
	if c.Variant == Legacy {
		if names, err := c.legacyTables(f); err == nil && len(names) == 0 {
			return nil, nil
		}
	}
	return c.run(ctx, c.save[f], nil)
}
