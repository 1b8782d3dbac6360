package iptables

import (
	"context"
	"fmt"
	"strings"

	"sluice/internal/base/inet"
)

// Features are optional capabilities of iptables and the kernel.
type Features struct {
	RandomFully bool // MASQUERADE --random-fully
	BPF         bool // match by bytecode
	NFAcct      bool // count matches in a named counter
	Recent      bool // lists of recent source addresses
	SCTP        bool // ports of SCTP
}

// Missing are the names of those that are not available.
func (f *Features) Missing() []string {
	var list []string
	for _, x := range []struct {
		has  bool
		name string
	}{
		{f.RandomFully, "random-fully"}, {f.BPF, "bpf"}, {f.NFAcct, "nfacct"}, {f.Recent, "recent"}, {f.SCTP, "sctp"},
	} {
		if !x.has {
			list = append(list, x.name)
		}
	}
	return list
}

// Probe finds out which features are available, by writing rules into a chain that
// no other leads to. It creates the nfacct counter.
func (c *Commands) Probe(ctx context.Context, chain, counter string) (Features, error) {
	f := Features{RandomFully: c.supportsRandomFully(ctx)}
	counted := createCounter(c.netns, counter) == nil
	probes := []struct {
		has   *bool
		match string
	}{
		{&f.BPF, ` -m bpf --bytecode "` + SameAddressBytecode(inet.IPv4) + `"`},
		{&f.Recent, " -m recent --rcheck --name " + chain},
		{&f.SCTP, " -p sctp -m sctp --dport 1"},
		{&f.NFAcct, " -m nfacct --nfacct-name " + counter},
	}
	if !counted {
		probes = probes[:len(probes)-1]
	}
	var matches []string
	for _, probe := range probes {
		matches = append(matches, probe.match)
	}
	// Usually all are available, and one test is enough.
	all, err := c.accepts(ctx, chain, matches...)
	for _, probe := range probes {
		if *probe.has = all; !all && err == nil {
			*probe.has, err = c.accepts(ctx, chain, probe.match)
		}
	}
	return f, err
}

// accepts tries rules with those matches, and removes the chain again.
func (c *Commands) accepts(ctx context.Context, chain string, matches ...string) (bool, error) {
	declare := "*" + Filter + "\n:" + chain + " - [0:0]\n"
	text := declare
	for _, match := range matches {
		text += "-A " + chain + match + " -j RETURN\n"
	}
	err := c.Restore(ctx, inet.IPv4, strings.NewReader(text+"COMMIT\n"))
	if Refused(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = c.Restore(ctx, inet.IPv4, strings.NewReader(declare+"-X "+chain+"\nCOMMIT\n"))
	return err == nil, err
}

// supportsRandomFully reports whether iptables has version 1.6.2 or later.
func (c *Commands) supportsRandomFully(ctx context.Context) bool {
	out, err := c.run(ctx, c.restore[inet.IPv4], nil, "--version")
	if err != nil {
		return false
	}
	_, version, _ := strings.Cut(string(out), " v")
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return true
	}
	return major*1_000_000+minor*1_000+patch >= 1_006_002
}
