package iptables

import (
	"errors"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// features are what iptables can do here.
type features struct {
	randomFully bool // choose the source port of masqueraded connections at random
	bytecode    bool // match by a program
	accounting  bool // count what a rule matches under a name
	affinity    bool // remember clients
	sctp        bool // know the ports of SCTP
}

// missing names what cannot be done.
func (c *features) missing() []string {
	var list []string
	for _, f := range []struct {
		has  bool
		name string
	}{
		{c.randomFully, "random-fully"}, {c.bytecode, "bpf"}, {c.accounting, "nfacct"}, {c.affinity, "recent"}, {c.sctp, "sctp"},
	} {
		if !f.has {
			list = append(list, f.name)
		}
	}
	return list
}

// lacks says what a frontend needs and is not there, nil for nothing. Otherwise
// all such frontends would have to be found out one by one.
func (c *features) lacks(f *plan.Frontend) error {
	switch {
	case f.Affinity > 0 && !c.affinity:
		return errNoAffinity
	case f.Protocol == model.SCTP && !c.sctp:
		return errNoSCTP
	}
	return nil
}

var (
	errNoAffinity = errors.New("session affinity needs the match recent of iptables (load the module xt_recent, or use a kernel with CONFIG_NETFILTER_XT_MATCH_RECENT)")
	errNoSCTP     = errors.New("SCTP needs the match sctp of iptables (load the module xt_sctp, or use a kernel with CONFIG_NETFILTER_XT_MATCH_SCTP)")
)
