//go:build linux

package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/base/inet"
	"sluice/internal/kernel/nfnetlink"
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

// Instructions of the classic BPF machine (linux/filter.h).
const (
	bpfLoadWord  = 0x20 // A = the word at k
	bpfCopy      = 0x07 // X = A
	bpfJumpEqual = 0x1d // jump if A == X
	bpfReturn    = 0x06
)

// SameAddressBytecode is an argument of the match bpf that selects packets whose
// source address is their destination address.
func SameAddressBytecode(f inet.Family) string {
	if f == inet.IPv6 {
		return sameWords(8, 24, 4)
	}
	return sameWords(12, 16, 1)
}

// sameWords compares count words at two offsets of the network header.
func sameWords(source, destination, count int) string {
	var code [][4]int
	for i := range count {
		fail := 4*(count-i-1) + 1 // skips the rest of the comparisons and the success
		code = append(code,
			[4]int{bpfLoadWord, 0, 0, source + 4*i},
			[4]int{bpfCopy, 0, 0, 0},
			[4]int{bpfLoadWord, 0, 0, destination + 4*i},
			[4]int{bpfJumpEqual, 0, fail, 0})
	}
	code = append(code, [4]int{bpfReturn, 0, 0, 65535}, [4]int{bpfReturn, 0, 0, 0})
	var b strings.Builder
	fmt.Fprint(&b, len(code))
	for _, c := range code {
		fmt.Fprintf(&b, ",%d %d %d %d", c[0], c[1], c[2], c[3])
	}
	return b.String()
}

// Messages and attributes of nfacct (linux/netfilter/nfnetlink_acct.h).
const (
	acctNew = 0
	acctGet = 1

	acctName    = 1
	acctPackets = 2
)

// createCounter creates an nfacct counter unless it exists.
func createCounter(netns int, name string) error {
	err := acct(netns, acctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name, nil)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// ReadCounter returns the number of packets of an nfacct counter.
func ReadCounter(netns int, name string) (uint64, error) {
	var packets uint64
	err := acct(netns, acctGet, 0, name, func(payload []byte) error {
		for typ, v := range nfnetlink.Attrs(payload[nfnetlink.GenHeaderLen:]) {
			if typ == acctPackets && len(v) == 8 {
				packets = binary.BigEndian.Uint64(v)
			}
		}
		return nil
	})
	return packets, err
}

// acct sends one request, and calls f, unless it is nil, with the answer.
func acct(netns int, msg, flags uint16, name string, f func([]byte) error) (err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b := nfnetlink.AppendNetfilterHeader(nil, unix.NFNL_SUBSYS_ACCT<<8|msg, flags, unix.AF_UNSPEC, 0)
	return c.Do(nfnetlink.AppendAttr(b, acctName, append([]byte(name), 0)), f)
}
