package nftables

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
	"sluice/internal/plan"
)

// chain describes a chain: it is a value, and equal descriptions are the same
// chain. From it follow its name, its rules and the chains it leads to.
type chain struct {
	kind kind

	// Of balance and entry chains: which maps they use, and how many endpoints
	// the pool has.
	nodePort, local, sticky bool
	size                    int

	// Of entry chains: what happens before balancing, or before verdict if size
	// is 0.
	filtered, split bool
	masquerade      plan.Masquerade
	verdict         plan.Verdict
	// lengths are those of the source ranges that a filtered one admits; if there are
	// any, it is for frontends of one protocol.
	lengths prefixLengths

	// Of recall and remember chains: whose clients, and for how long they are
	// remembered. A recall chain is of a pool, local or not, or splits.
	port     affinityID
	protocol model.Protocol
	seconds  uint32
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
	rememberPostrouting
	rememberInput

	dispatch       // finds the frontend
	reject         // refuses audibly
	drop           // not a chain: the verdict
	dropSource     // drops whom the source ranges do not admit, and counts
	mark           // asks for masquerading
	markOffCluster // asks for it unless the source is a pod
	masqueraded    // takes the mark off and masquerades
	unknown        // ClusterIPs that are no frontend
	entry          // what comes before the choice of an endpoint
	balance        // chooses an endpoint
	recall         // sends a client to the endpoint that is remembered, if one is
	remembering    // finds the frontend again, to remember its client's endpoint
	remember       // remembers it
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
	reject:              "refuse", // nft keeps "reject" and "masquerade" for itself
	drop:                "drop!",  // not a chain, so not a name that one could have
	dropSource:          "drop-source",
	mark:                "mark-for-masquerade",
	markOffCluster:      "mark-off-cluster",
	masqueraded:         "masquerade-marked",
	unknown:             "unknown-cluster-ips",
	remembering:         "remember",
}

// name is unique: no two descriptions share one.
func (c chain) name() string {
	switch c.kind {
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
			// Node ports are told apart because a split goes on in their map.
			if c.nodePort {
				b.WriteString("nodeport-")
			}
			b.WriteString(c.verdict.String())
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
	fmt.Fprintf(&b, "lb-%d", c.size)
	if c.sticky {
		b.WriteString("-sticky")
	}
	return b.String()
}

// target is where an entry chain leads: to balancing, or to a verdict.
func (c chain) target() chain {
	if c.size > 0 {
		return chain{kind: balance, nodePort: c.nodePort, local: c.local, sticky: c.sticky, size: c.size}
	}
	return verdictChain(c.verdict)
}

// direct is the chain itself, or where it leads if it does nothing before.
func (c chain) direct() chain {
	if c.filtered || c.split || c.size > 0 && c.masquerade != plan.MasqueradeNever {
		return c
	}
	return c.target()
}

func verdictChain(v plan.Verdict) chain {
	if v == plan.Drop {
		return chain{kind: drop}
	}
	return chain{kind: reject}
}

// leadsTo lists the chains that the rules of c go to or jump to.
func (c chain) leadsTo() []chain {
	var to []chain
	add := func(c chain) {
		if c.kind != drop {
			to = append(to, c)
		}
	}
	switch c.kind {
	case prerouting, output:
		add(chain{kind: dispatch})
	case postrouting:
		add(chain{kind: masqueraded})
	case forward, filterOutput:
		add(chain{kind: unknown})
	case unknown:
		add(chain{kind: reject})
	case rememberPostrouting, rememberInput:
		add(chain{kind: remembering})
	case markOffCluster:
		add(chain{kind: mark})
	case entry:
		if c.filtered {
			add(chain{kind: dropSource})
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
		add(c.target())
	case balance:
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
		}
	}
	return to
}

// recallFrom are the two chains that a recall chain that splits leads to.
func (c chain) recallFrom() (inside, outside chain) {
	inside = chain{kind: recall, port: c.port, protocol: c.protocol}
	outside = inside
	outside.local = true
	return inside, outside
}

// Priorities of nft(8)'s names: dstnat, srcnat and filter.
const (
	priorityDestNAT   = -100
	prioritySourceNAT = 100
	priorityFilter    = 0
)

// nft is the chain as the kernel gets it.
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
	case rememberPostrouting:
		// Before masquerading, while the source is still the client's.
		base("filter", unix.NF_INET_POST_ROUTING, prioritySourceNAT-1)
	case rememberInput:
		base("filter", unix.NF_INET_LOCAL_IN, priorityFilter)
	}
	return n
}

// baseChains are in every table. They are made last: once they are there,
// packets come in.
var baseChains = []chain{{kind: postrouting}, {kind: forward}, {kind: filterOutput}, {kind: output}, {kind: prerouting}}

// affinityChains see every packet, so they are there only while some frontend
// has session affinity.
var affinityChains = []chain{{kind: rememberPostrouting}, {kind: rememberInput}}
