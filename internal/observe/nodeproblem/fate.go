package nodeproblem

import (
	"net/netip"

	"sluice/internal/model"
)

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
	// endpoint and protocol are what the packets of the connection have at a side of their
	// headers; not valid if any endpoint is meant, and of port 0 if any port of one is.
	side     side
	endpoint netip.AddrPort
	protocol model.Protocol
	// idle reports whether nothing can come in, or go out, through an interface; nil if that is
	// not known.
	idle func(name string) bool
}

// side is where the headers of packets have the endpoint.
type side uint8

const (
	neither side = iota
	source
	destination
)

// condition is part of what a rule asks of packets.
type condition func(*packet) truth

func unclear(*packet) truth { return maybe }

// rule is a rule of a base chain, as far as it is interpreted.
type rule struct {
	conditions []condition
	action     action
	rules      []rule // those to follow
	last       bool   // the rules behind it are not met after those
	particular bool   // a condition is about addresses or ports
}

func (r *rule) asks(c condition) { r.conditions = append(r.conditions, c) }

// action is what a rule does with packets that meet its conditions.
type action uint8

const (
	goOn   action = iota // the next rule
	accept               // the chain is done
	drop                 // or reject
	leave                // the chain that led here goes on, or the policy decides
	follow               // the rules of another chain
	decide               // another program decides, or a chain that was not read
)

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
	// particular says that a rule asks for addresses or ports, so that endpoints may differ.
	particular bool
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
		p.translated, p.side = maybe, neither
	}
	w := walk{packet: &p, drops: c.drops, certain: true}
	switch w.through(c.rules, true) {
	case accepted:
		return passes, true
	case dropped:
		return ruleDrops, w.certain
	}
	if c.drops {
		return policyDrops, w.certain
	}
	return passes, true
}

// walk is the way of a packet through a base chain, and the chains that it leads to.
type walk struct {
	packet  *packet
	drops   bool // the policy is drop
	certain bool // no rule so far may have accepted it
}

// end is how a chain ends for a packet.
type end uint8

const (
	returned end = iota // to the chain that led to it, or to the policy
	accepted
	dropped
)

// through follows the rules of a chain.
func (w *walk) through(rules []rule, base bool) end {
	left := false // the packet may have returned already
	for i := range rules {
		r := &rules[i]
		is := r.matches(w.packet)
		if is == no {
			continue
		}
		does := r.action
		switch {
		case does == decide, does == accept && is == maybe:
			w.certain = false
		case does == leave && is == yes:
			return returned
		case does == leave && !base:
			left = true
		case does == leave:
			w.certain = w.certain && w.drops
		case does == follow && is == maybe:
			other := walk{packet: w.packet, certain: true}
			if ends := other.through(r.rules, false); ends == accepted || !other.certain {
				w.certain = false
			}
			if r.last && base {
				w.certain = w.certain && w.drops
			}
			left = left || r.last && !base
		case does == follow:
			switch ends := w.through(r.rules, false); {
			case ends == accepted:
				does = accept
			case ends == dropped:
				does = drop
			case r.last:
				return returned
			}
		}
		switch {
		case is != yes || does != accept && does != drop:
			continue
		case left: // what has not returned is accepted or dropped
			w.certain = w.certain && does == drop
			return returned
		case does == accept:
			return accepted
		}
		return dropped
	}
	return returned
}

// particular reports whether endpoints may differ for rules.
func particular(rules []rule) bool {
	for i := range rules {
		if rules[i].particular || particular(rules[i].rules) {
			return true
		}
	}
	return false
}
