package nodeproblem

import "sluice/internal/model"

// truth is whether something is so.
type truth int8

const (
	no truth = iota - 1
	maybe
	yes
)

func (t truth) not() truth { return -t }

func truthOf(is bool) truth {
	if is {
		return yes
	}
	return no
}

// States of a packet in connection tracking, as ct state of nftables has them.
const (
	stateEstablished = 1 << 1
	stateNew         = 1 << 3
)

// packet is what is known of the packets of a leg. None of them comes in, or goes out, through
// the loopback device.
type packet struct {
	family      model.Family
	state       uint32
	translated  truth // the destination of the connection is another one than the client's
	masqueraded bool
}

// condition is part of what a rule asks of packets.
type condition func(*packet) truth

// unclear is a condition that is not interpreted.
func unclear(*packet) truth { return maybe }

// rule is a rule of a base chain, as far as it is interpreted.
type rule struct {
	conditions []condition
	action     action
}

// action is what a rule does with packets that meet its conditions.
type action uint8

const (
	goOn   action = iota // the next rule
	accept               // the chain is done
	drop                 // or reject
	leave                // the policy decides
	decide               // another chain or program decides
)

// matches reports whether the rule applies to a packet.
func (r *rule) matches(p *packet) truth {
	all := yes
	for _, c := range r.conditions {
		all = min(all, c(p))
	}
	return all
}

// chain is a base chain.
type chain struct {
	// command is what lists and changes it: nft, or one of iptables.
	command  string
	table    string // with its family if it is one of nftables
	name     string
	families []model.Family
	hook     hook
	priority int32
	drops    bool // the policy is drop
	rules    []rule
}

// fate is what a chain does with a packet.
type fate uint8

const (
	passes fate = iota
	policyDrops
	ruleDrops
)

// dstnat is the priority of the chains in which the node's own packets are translated.
const dstnat = -100

// fate returns what happens to a packet, and whether that is certain. Rules that drop some
// packets, and may drop this one, do not count: firewalls are there to drop some.
func (c *chain) fate(p packet) (f fate, certain bool) {
	if c.hook == output && c.priority <= dstnat && p.translated == yes {
		p.translated = maybe
	}
	certain = true // no earlier rule may have accepted it
	for i := range c.rules {
		r := &c.rules[i]
		does, how := r.action, ruleDrops
		if does == leave {
			does, how = accept, policyDrops
			if c.drops {
				does = drop
			}
		}
		switch is := r.matches(&p); {
		case is == no || does == goOn:
		case does == decide, does == accept && is == maybe:
			certain = false
		case does == accept:
			return passes, true
		case is == yes:
			return how, certain
		}
	}
	if c.drops {
		return policyDrops, certain
	}
	return passes, true
}
