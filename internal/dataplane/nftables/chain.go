//go:build linux

package nftables

import (
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// chain describes a chain. Equal descriptions are the same chain: its name, its rules
// and the chains that it leads to follow from it.
type chain struct {
	kind kind

	// For balance and entry chains: which maps they use, how an endpoint is chosen,
	// and how many slots the pool has.
	nodePort, local, sticky bool
	ports                   model.PortRange // of a frontend that has a range of them
	choice                  choice
	size                    int
	target                  *Target // of choice byTarget

	// For entry chains: what happens before balancing, or before verdict if size is 0.
	filtered, split bool
	masquerade      plan.Masquerade
	verdict         plan.Verdict
	// lengths are the prefix lengths of the source ranges that a filtered chain admits;
	// if there are any, the chain is for one protocol.
	lengths prefixLengths

	// For recall and remember chains: the service port, and for how long clients are
	// remembered. A recall chain is for a pool, local or not, or splits. Chains with
	// a turn are for one frontend, and chains of a pool for that, which is here instead.
	port     affinityID
	protocol model.Protocol
	seconds  uint32
	part     uint8 // of remembered
}

// choice is how a slot is chosen.
type choice uint8

const (
	atRandom choice = iota
	fromMany        // at random, in pools of several sizes up to the chain's
	inTurn          // the next one; the chain's rule has the counter
	byClient        // by the client's address
	byPool          // likewise, among those of a pool that frontends share
	byTarget        // by the target: there are no slots
)

// choose sets how a slot of a route is chosen.
func (c *chain) choose(f *plan.Frontend, r *plan.Route, target *Target) {
	c.size = r.NumSlots()
	switch {
	case r.Delegated() && c.size > 0:
		c.choice, c.size, c.target = byTarget, 1, target
	case c.size <= 1: // there is nothing to choose
	case pooled(r):
		c.choice, c.port = byPool, poolOf(f, r)
	case r.ByClient():
		c.choice = byClient
	case r.Algorithm == model.RoundRobin:
		c.choice, c.port = inTurn, turnOf(f)
	case c.size > largePool && anySlot(r):
		c.choice, c.size = fromMany, roundedUp(c.size)
	}
}

// largePool is from how many endpoints on a chain is for pools of several sizes. For a chain of a pool that
// changes its size the kernel would look at all endpoints.
const largePool = 1024

// roundedUp returns the size of the chain for a large pool: sizes are an eighth or less apart.
func roundedUp(size int) int {
	step := stepTo(size)
	return (size + step - 1) / step * step
}

// stepTo is the distance from the next smaller size of chains.
func stepTo(size int) int { return 1 << (bits.Len(uint(size-1)) - 1) / 8 }

// turnOf identifies a frontend as affinityOf does a service port.
func turnOf(f *plan.Frontend) affinityID {
	return hashID(f.Key.String())
}

type kind uint8

const (
	noChain kind = iota

	// Base chains.
	prerouting
	output
	postrouting
	forward
	filterOutput
	targetInput
	rememberPostrouting
	rememberInput

	dispatch       // finds the frontend
	reject         // rejects
	drop           // not a chain: the verdict
	pass           // not a chain either: leaves the packet alone
	dropSource     // drops what the source ranges do not admit, and counts
	dropPortSource // the same for node ports
	mark           // requests masquerading
	markOffCluster // requests it unless the source is a pod
	masqueraded    // clears the mark and masquerades
	unknown        // ClusterIPs that are no frontend
	entry          // what happens before an endpoint is chosen
	balance        // chooses an endpoint
	recall         // sends a client to its remembered endpoint, if any
	remembering    // finds the frontend again, to remember the client's endpoint
	remember       // remembers it
	remembered     // not a chain: a clientMap
	findRange      // finds the range of a port; if it splits, that for clients from outside
	rangeSet       // not a chain: a set of ranges
)

var fixedNames = map[kind]string{
	prerouting:          "prerouting",
	output:              "output",
	postrouting:         "postrouting",
	forward:             "forward",
	filterOutput:        "filter-output",
	rememberPostrouting: "remember-postrouting",
	rememberInput:       "remember-input",
	dispatch:            "dispatch",
	reject:              "refuse", // "reject" and "masquerade" are keywords of nft
	drop:                "drop!",  // not a chain, and not a possible name of one
	pass:                "pass!",
	dropSource:          "drop-source",
	dropPortSource:      "drop-nodeport-source",
	mark:                "mark-for-masquerade",
	markOffCluster:      "mark-off-cluster",
	masqueraded:         "masquerade-marked",
	unknown:             "unknown-cluster-ips",
	remembering:         "remember",
}

// name is unique for a description.
func (c chain) name() string {
	switch c.kind {
	case targetInput:
		return c.target.Input.Name
	case rangeSet:
		return mapMark + rangeSetNames[c.part]
	case findRange:
		if c.split {
			return "find-range-outside"
		}
		return "find-range"
	case dropSource:
		return fixedNames[dropSource] + c.rangeName()
	case balance:
		return c.pool()
	case entry:
		var b strings.Builder
		if c.filtered {
			b.WriteString("filter-" + c.filterName() + "-")
		}
		if c.split {
			b.WriteString("split-")
		}
		switch c.masquerade {
		case plan.MasqueradeNode:
			b.WriteString("node-")
		case plan.MasqueradeOffCluster:
			b.WriteString("cluster-")
		case plan.MasqueradeAlways:
			b.WriteString("masq-")
		}
		if c.size == 0 {
			// Node ports differ because a split continues in their map.
			if c.nodePort {
				b.WriteString("nodeport-")
			}
			b.WriteString(c.verdict.String() + c.rangeName())
		} else {
			b.WriteString(c.pool())
		}
		return b.String()
	case recall:
		switch {
		case c.split:
			return fmt.Sprintf("recall-split-%016x", uint64(c.port))
		case c.local:
			return fmt.Sprintf("recall-local-%016x", uint64(c.port))
		}
		return fmt.Sprintf("recall-%016x", uint64(c.port))
	case remember:
		return fmt.Sprintf("remember-%016x-%d", uint64(c.port), c.seconds)
	case remembered:
		return mapMark + c.clientMap().name()
	}
	return fixedNames[c.kind]
}

func (c chain) pool() string {
	var b strings.Builder
	if c.nodePort {
		b.WriteString("nodeport-")
	}
	if c.local {
		b.WriteString("local-")
	}
	switch c.choice {
	case byTarget:
		b.WriteString(c.target.Name)
	case atRandom:
		fmt.Fprintf(&b, "lb-%d", c.size)
	case fromMany:
		fmt.Fprintf(&b, "lb-%d-to-%d", c.size-stepTo(c.size)+1, c.size)
	case byClient:
		fmt.Fprintf(&b, "hash-%d", c.size)
	case byPool:
		fmt.Fprintf(&b, "pool-%016x-%d", uint64(c.port), c.size)
	case inTurn:
		fmt.Fprintf(&b, "turn-%016x-%d", uint64(c.port), c.size)
	}
	if c.sticky {
		b.WriteString("-sticky")
	}
	return b.String() + c.rangeName()
}

// ranged reports whether the chain is for frontends with that range of ports.
func (c chain) ranged() bool { return c.ports != model.PortRange{} }

// rangeName is the end of the names of these.
func (c chain) rangeName() string {
	if !c.ranged() {
		return ""
	}
	return rangeName(c.ports)
}

func rangeName(r model.PortRange) string { return ofRange + r.String() }

// next is the chain that an entry chain leads to.
func (c chain) next() chain {
	switch {
	case c.choice == byTarget:
		return chain{kind: balance, choice: byTarget, size: 1, target: c.target, local: c.local}
	case c.size > 0:
		return chain{kind: balance, nodePort: c.nodePort, ports: c.ports, local: c.local, sticky: c.sticky, choice: c.choice, size: c.size, port: c.port}
	}
	return verdictChain(c.verdict)
}

// direct is the chain itself, or the next one if it does nothing else. That of a range is always one of it.
func (c chain) direct() chain {
	if c.filtered || c.split || c.size > 0 && c.masquerade != plan.MasqueradeNever || c.size == 0 && c.ranged() {
		return c
	}
	return c.next()
}

func verdictChain(v plan.Verdict) chain {
	switch v {
	case plan.Drop:
		return chain{kind: drop}
	case plan.Pass:
		return chain{kind: pass}
	}
	return chain{kind: reject}
}

// needs returns what the rules of c refer to: the chains that they go to or jump to, and the maps of
// clients.
func (c chain) needs() []chain {
	var to []chain
	add := func(c chain) {
		if c.real() {
			to = append(to, c)
		}
	}
	if c.ranged() || c.kind == findRange {
		eachRangeSet(add)
	}
	switch c.kind {
	case prerouting, output:
		add(chain{kind: dispatch})
	case dispatch: // if there are exclusive addresses
		add(chain{kind: unknown})
		add(chain{kind: reject})
	case postrouting:
		add(chain{kind: masqueraded})
	case forward, filterOutput:
		add(chain{kind: unknown})
	case targetInput:
		add(chain{kind: unknown})
		add(chain{kind: reject})
	case unknown:
		add(chain{kind: reject})
	case rememberPostrouting, rememberInput:
		add(chain{kind: remembering})
	case markOffCluster:
		add(chain{kind: mark})
	case entry:
		if c.filtered {
			add(c.notAdmitted())
			if c.lengths.some() {
				add(c.admitted())
			}
			break
		}
		if c.masquerade == plan.MasqueradeOffCluster {
			add(chain{kind: markOffCluster})
		} else if c.masquerade != plan.MasqueradeNever {
			add(chain{kind: mark})
		}
		add(c.next())
		if c.split && c.ranged() {
			add(chain{kind: findRange, split: true})
		}
	case balance:
		if c.choice == byTarget {
			add(chain{kind: reject}) // if the target has no rules
			break
		}
		if c.sticky {
			plain := c
			plain.sticky = false
			add(plain)
		}
	case recall:
		if c.split {
			inside, outside := c.recallFrom()
			add(inside)
			add(outside)
			break
		}
		add(c.port.clientMap(c.local).object())
	case remember:
		add(c.port.clientMap(false).object())
		add(c.port.clientMap(true).object())
	}
	return to
}

// recallFrom returns the two chains that a splitting recall chain leads to.
func (c chain) recallFrom() (inside, outside chain) {
	inside = chain{kind: recall, port: c.port, protocol: c.protocol}
	outside = inside
	outside.local = true
	return inside, outside
}

// The priorities that nft(8) calls dstnat, srcnat and filter.
const (
	priorityDestNAT   = -100
	prioritySourceNAT = 100
	priorityFilter    = 0
)

// nft returns the chain for the kernel.
func (c chain) nft() nft.Chain {
	n := nft.Chain{Name: c.name()}
	base := func(typ string, hook uint32, priority int32) {
		n.Type, n.Hook, n.Priority = typ, hook, priority
	}
	switch c.kind {
	case prerouting:
		base("nat", unix.NF_INET_PRE_ROUTING, priorityDestNAT)
	case output:
		base("nat", unix.NF_INET_LOCAL_OUT, priorityDestNAT)
	case postrouting:
		base("nat", unix.NF_INET_POST_ROUTING, prioritySourceNAT)
	case forward:
		base("filter", unix.NF_INET_FORWARD, priorityFilter)
	case filterOutput:
		base("filter", unix.NF_INET_LOCAL_OUT, priorityFilter)
	case targetInput:
		n = c.target.Input
	case rememberPostrouting:
		// Before masquerading, while the source is still the client's.
		base("filter", unix.NF_INET_POST_ROUTING, prioritySourceNAT-1)
	case rememberInput:
		base("filter", unix.NF_INET_LOCAL_IN, priorityFilter)
	}
	return n
}

// baseChains are in every table. They are added last: they let packets in.
var baseChains = []chain{{kind: postrouting}, {kind: forward}, {kind: filterOutput}, {kind: output}, {kind: prerouting}}

// affinityChains see every packet, so they exist only while a frontend has session
// affinity.
var affinityChains = []chain{{kind: rememberPostrouting}, {kind: rememberInput}}
