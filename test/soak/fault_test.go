//go:build linux

package soak

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// fault is something that clients of Services may feel, and that is not the proxy's doing.
type fault struct {
	name   string
	copies int // in the deck
	// hurts says that some connections fail.
	hurts bool
	// forwarded says that it is felt only where the kernel forwards connections, and the proxy does
	// not open its own.
	forwarded bool
	// begin begins it, and returns what ends it.
	begin func(*trial) (mend func() error, err error)
}

func faults() []fault {
	return []fault{
		{"an endpoint goes silent", 2, true, false, (*trial).silent},
		{"an endpoint refuses", 2, true, false, (*trial).refusing},
		{"an endpoint goes silent for some", 1, true, true, (*trial).silentForSome},
		{"a firewall drops what is forwarded", 2, true, true, (*trial).firewallForward},
		{"a firewall drops what is for some", 2, true, true, (*trial).firewallSome},
		{"a route is taken", 1, true, false, (*trial).routeTaken},
		{"a firewall drops what comes in", 1, true, false, (*trial).firewallInput},
		{"iptables drops what is forwarded", 1, true, true, (*trial).firewallIPTables},
		{"forwarding is off", 1, true, true, (*trial).forwardingOff},
		{"all endpoints are removed", 1, true, false, (*trial).endpointsRemoved},
		{"the API server is away", 1, false, false, (*trial).apiAway},
		{"the API server is away, and an endpoint goes silent", 1, true, false, (*trial).silentWhileAway},
		{"the proxy is killed beside a silent endpoint", 1, true, false, (*trial).silentAndKilled},
	}
}

// faultDeck has the faults that are felt in a mode.
func faultDeck(mode string) *deck[fault] {
	d := &deck[fault]{}
	for _, f := range faults() {
		if f.forwarded && scenario.Modes[mode].InProcess {
			continue
		}
		for range f.copies {
			if chosen(f.name) {
				d.all = append(d.all, f)
			}
		}
	}
	return d
}

// faultTable is the table of nftables that a fault consists of.
const faultTable = "soak-fault"

// filter adds a chain of nftables to a host.
func (s *trial) filter(host, chain string, rules ...string) (mend func() error, err error) {
	h, err := s.lab.Host(host)
	if err != nil {
		return nil, err
	}
	run := func(text string) error {
		ctx, cancel := testkit.WithTimeout(s.ctx, testkit.Timeout)
		defer cancel()
		_, err := h.Run(ctx, lab.Command{Args: []string{"nft", "-f", "-"}, Input: text})
		return err
	}
	s.note("on %s: %s { %s }", host, chain, strings.Join(rules, "; "))
	return func() error { return run("delete table inet " + faultTable) },
		run(fmt.Sprintf("table inet %s {\nchain c {\ntype filter hook %s;\n%s\n}\n}\n", faultTable, chain, strings.Join(rules, "\n")))
}

// endpoint adds a rule that is met by new connections to an endpoint in its own network.
func (s *trial) endpoint(does string) (mend func() error, err error) {
	return s.filter(s.pod("pod1", "pod2", "remote1", "remote2"), "input priority 0", fmt.Sprintf("tcp dport %d %s", lab.EchoPorts[0], does))
}

// pod draws one of some pods whose failure clients feel: where the proxy opens connections, it tries
// other endpoints in place of one that fails.
func (s *trial) pod(names ...string) string {
	if scenario.Modes[s.mode].InProcess {
		names = slices.DeleteFunc(names, func(name string) bool { return name != "pod2" && name != "remote2" })
	}
	return s.one(names...)
}

// one draws one of some words.
func (s *trial) one(words ...string) string { return words[s.rng.IntN(len(words))] }

// family returns nothing, or the condition that a packet is of a family.
func (s *trial) family() string { return s.one("", "meta nfproto ipv4 ", "meta nfproto ipv6 ") }

func (s *trial) silent() (func() error, error) { return s.endpoint("drop") }

func (s *trial) refusing() (func() error, error) { return s.endpoint("reject with tcp reset") }

// silentForSome loses every other connection.
func (s *trial) silentForSome() (func() error, error) { return s.endpoint("tcp sport & 2 == 2 drop") }

func (s *trial) firewallForward() (func() error, error) {
	chain := "forward priority " + s.one("-300", "-5", "0", "10")
	switch s.rng.IntN(3) {
	case 0:
		return s.filter("node1", chain+"; policy drop", "")
	case 1:
		return s.filter("node1", chain, s.family()+"counter drop")
	}
	return s.filter("node1", chain, s.family()+"ct state new counter reject")
}

// firewallSome has conditions on endpoints, also in a chain that a rule leads to.
func (s *trial) firewallSome() (func() error, error) {
	port := fmt.Sprintf("tcp dport %d", lab.EchoPorts[0])
	pod, err := s.lab.Host(s.one("pod1", "pod2", "remote1", "remote2"))
	if err != nil {
		return nil, err
	}
	address := []string{fmt.Sprintf("ip daddr %v", pod.Addrs[0]), fmt.Sprintf("ip6 daddr %v", pod.Addrs[1])}[s.rng.IntN(2)]
	rule := s.one(port, address, address+" "+port) + s.one(" drop", " counter reject", " jump { ct state established return; drop; }")
	return s.filter("node1", "forward priority "+s.one("-5", "0"), "ct state invalid drop", rule)
}

// routeTaken has the node know no way to a pod of another one.
// routeTaken loses the way to the only endpoint of a Service. Where there are others, the kernel chooses anew
// for a packet that is repeated, because none that has no way leaves anything behind: hardly any client fails
// that waits long enough, as on a busy machine.
func (s *trial) routeTaken() (func() error, error) {
	pod, err := s.lab.Host("remote2")
	if err != nil {
		return nil, err
	}
	to := pod.Addrs[s.rng.IntN(2)].String()
	kind := s.one("blackhole", "unreachable")
	s.note("%s %s", kind, to)
	route := func(args ...string) error {
		_, err := s.run(s.ctx, "", append([]string{"ip", "route"}, args...)...)
		return err
	}
	return func() error { return route("del", to) }, route("add", kind, to)
}

func (s *trial) firewallInput() (func() error, error) {
	return s.filter("node1", "input priority 0; policy drop", "iif lo accept", "meta l4proto ipv6-icmp accept")
}

func (s *trial) firewallIPTables() (func() error, error) {
	command := s.one("iptables", "ip6tables") + "-" + s.one("nft", "legacy")
	s.note("by %s", command)
	if _, err := s.run(s.ctx, "", command, "-w", "10", "-P", "FORWARD", "DROP"); err != nil {
		return nil, err
	}
	return func() error {
		_, err := s.run(s.ctx, "", command, "-w", "10", "-P", "FORWARD", "ACCEPT")
		return err
	}, nil
}

func (s *trial) forwardingOff() (func() error, error) {
	file := s.one("ipv4/ip_forward", "ipv6/conf/all/forwarding")
	s.note("%s", file)
	set := func(value string) error {
		_, err := s.run(s.ctx, value, "tee", "/proc/sys/net/"+file)
		return err
	}
	return func() error { return set("1") }, set("0")
}

func (s *trial) endpointsRemoved() (func() error, error) {
	number := []int{spread, single, near}[s.rng.IntN(3)]
	s.note("of s%d", number)
	var before []string
	set := func(endpoints []string) error {
		return s.population.set(func(all map[int]service) {
			svc := all[number]
			before, svc.endpoints = svc.endpoints, endpoints
			all[number] = svc
		})
	}
	err := set(nil)
	return func() error { return set(before) }, err
}

// apiAway stops the API server. All connections go on.
func (s *trial) apiAway() (func() error, error) {
	began := time.Now()
	if err := s.hangUp(); err != nil {
		return nil, err
	}
	// If it is not noticed in time, judge tells.
	_ = testkit.Poll(verdictTime+faultExtra, func() error {
		if s.said.proxy() == verdict.Serving {
			return errors.New("the proxy is said to serve")
		}
		return nil
	})
	return func() error {
		s.away = append(s.away, span{began, time.Now()})
		return s.serve()
	}, nil
}

func (s *trial) silentWhileAway() (func() error, error) {
	back, err := s.apiAway()
	if err != nil {
		return back, err
	}
	mend, err := s.silent()
	return func() error { return errors.Join(mend(), back()) }, err
}

// silentAndKilled has a new process find out what the one before knew.
func (s *trial) silentAndKilled() (func() error, error) {
	mend, err := s.silent()
	if err != nil {
		return mend, err
	}
	if err := s.await("clients to fail", s.failing); err != nil {
		return mend, err
	}
	if err := s.end((*lab.Proxy).Kill); err != nil {
		return mend, err
	}
	return mend, s.start(s.ctx)
}
