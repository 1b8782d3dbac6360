package iptables

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"sluice/internal/model"
)

// host is what iptables is done with.
type host interface {
	// list reads a table.
	list(context.Context, Table) (*listing, error)
	// rulesOf reads the rules of a chain as -S prints them, none if it is not
	// there.
	rulesOf(context.Context, Table, string) ([]string, error)
	// write carries out what iptables-restore would, or nothing of it.
	write(context.Context, model.Family, io.Reader) error
}

// Check tells whether iptables can be used here, and what is missing if not.
// New succeeds where Check fails.
func (d *Dataplane) Check(ctx context.Context) error {
	p, err := d.find(ctx)
	if err != nil {
		return err
	}
	if err := p.has(ctx, model.IPv4); err != nil {
		return fmt.Errorf("iptables mode cannot work here: %w (run the proxy as root or with CAP_NET_ADMIN and CAP_NET_RAW, on a kernel with iptables)", err)
	}
	return nil
}

// CheckFamily implements dataplane.FamilyChecker.
func (d *Dataplane) CheckFamily(ctx context.Context, f model.Family) error {
	p, err := d.find(ctx)
	if err != nil {
		return err
	}
	return p.has(ctx, f)
}

func (d *Dataplane) find(ctx context.Context) (*programs, error) {
	if d.variant != AutoVariant {
		return findVariant(ctx, d.variant, d.netns)
	}
	return choosePrograms(ctx, d.netns)
}

// prepare finds out what there is to work with, once.
func (d *Dataplane) prepare(ctx context.Context) error {
	if d.host != nil {
		return nil
	}
	p, err := d.find(ctx)
	if err != nil {
		return err
	}
	can, err := p.probe(ctx)
	if err != nil {
		return fmt.Errorf("find out what iptables can do here: %w", err)
	}
	families := []model.Family{model.IPv4}
	if err := p.has(ctx, model.IPv6); err == nil {
		families = append(families, model.IPv6)
	} else if ctx.Err() != nil {
		return err
	} else {
		d.logger.V(1).Info("IPv6 cannot be had: IPv4 only", "reason", err.Error())
	}
	s, err := newStamper(p.variant, d.netns, families)
	if err != nil {
		return err
	}
	d.logger.Info("Using iptables", "variant", p.variant.String(), "program", p.restore[model.IPv4],
		"missing", can.missing())
	d.note(func() { d.host, d.used, d.stamper, d.features, d.families = p, p.variant, s, can, families })
	d.batch = cmp.Or(d.batch, p.variant.batch())
	return nil
}

// probe finds out what iptables and the kernel can do.
func (p *programs) probe(ctx context.Context) (features, error) {
	f := features{randomFully: p.supportsRandomFully(ctx)}
	counted := createCounter(p.netns, invalidCounter) == nil
	probes := []struct {
		has   *bool
		match string
	}{
		{&f.bytecode, ` -m bpf --bytecode "` + words[model.IPv4].bytecode + `"`},
		{&f.affinity, " -m recent --rcheck --name " + probeChain},
		{&f.sctp, " -p sctp -m sctp --dport 1"},
		{&f.accounting, " -m nfacct --nfacct-name " + invalidCounter},
	}
	if !counted {
		probes = probes[:len(probes)-1]
	}
	var matches []string
	for _, probe := range probes {
		matches = append(matches, probe.match)
	}
	// Mostly all are there, and one question is enough.
	all, err := p.accepts(ctx, matches...)
	for _, probe := range probes {
		if *probe.has = all; !all && err == nil {
			*probe.has, err = p.accepts(ctx, probe.match)
		}
	}
	return f, err
}

// accepts tries rules with those matches in a chain that nothing leads to, in the
// smaller one of our tables.
func (p *programs) accepts(ctx context.Context, matches ...string) (bool, error) {
	declare := "*" + filter + "\n:" + probeChain + " - [0:0]\n"
	text := declare
	for _, match := range matches {
		text += "-A " + probeChain + match + " -j RETURN\n"
	}
	err := p.write(ctx, model.IPv4, strings.NewReader(text+"COMMIT\n"))
	if isFailure(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = p.write(ctx, model.IPv4, strings.NewReader(declare+"-X "+probeChain+"\nCOMMIT\n"))
	return err == nil, err
}
