package iptables

import (
	"bytes"
	"context"
	"math"
	"slices"

	"sluice/internal/model"
)

// Variant is one of the two implementations of iptables.
type Variant uint8

// The variants.
const (
	AutoVariant Variant = iota // as the other users of the host
	Legacy
	NFT
)

func (v Variant) String() string { return [...]string{"auto", "legacy", "nft"}[v] }

// batch is how many chains are best named in one input. iptables-nft takes time
// with the number of rules times that of chains. Legacy writes the whole table
// each time.
func (v Variant) batch() int {
	if v == NFT {
		return 256
	}
	return math.MaxInt
}

// Variant is the variant in use; AutoVariant while nothing was read or written.
func (d *Dataplane) Variant() (v Variant) {
	d.note(func() { v = d.used })
	return v
}

// hintChains are those by which kubelet shows what the host uses.
var hintChains = []string{":KUBE-IPTABLES-HINT ", ":KUBE-KUBELET-CANARY "}

// choosePrograms finds the programs of the variant that the other users of the
// host chose: kubelet, or else most of them, or else whoever installed
// iptables. Rules in the other variant would work as well, but two variants at
// work on one host confuse everybody who looks at it.
func choosePrograms(ctx context.Context, netns int) (*programs, error) {
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
	used, err := nft.usage(ctx)
	if err != nil {
		return nil, err
	}
	usedLegacy, err := legacy.usage(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case used.hint:
		return nft, nil
	case usedLegacy.hint, usedLegacy.rules > used.rules:
		return legacy, nil
	case used.rules > usedLegacy.rules:
		return nft, nil
	}
	unnamed := &programs{save: map[model.Family]string{}, restore: map[model.Family]string{}, netns: netns}
	if unnamed.find("") == nil && unnamed.versionVariant(ctx) == Legacy {
		return legacy, nil
	}
	return nft, nil
}

// usage is how a variant is used on the host.
type usage struct {
	hint  bool
	rules int
}

func (p *programs) usage(ctx context.Context) (usage, error) {
	var u usage
	for f := range p.save {
		out, err := p.listAll(ctx, f)
		if err != nil && !isFailure(err) {
			return u, err
		}
		u.hint = u.hint || slices.ContainsFunc(hintChains, func(h string) bool { return bytes.Contains(out, []byte(h)) })
		u.rules += bytes.Count(out, []byte("\n-A "))
	}
	return u, nil
}

// listAll lists all tables there are.
func (p *programs) listAll(ctx context.Context, f model.Family) ([]byte, error) {
	if p.variant == Legacy {
		if names, err := p.legacyTables(f); err == nil && len(names) == 0 {
			return nil, nil
		}
	}
	return p.run(ctx, p.save[f], nil)
}
