//go:build linux

package iptables

// dispatch is the kind of tree that finds the rules for a packet by its destination.
type dispatch struct {
	enter       string // the chain that the tree is entered by
	start       string // of the names of its other chains
	addressBits int
	tail        []rule // behind those of the tree
}

// writer is an entry of a dispatch tree, which writes its own rules.
type writer interface {
	entry
	write(text *chainText)
}

// singleRule is an entry of one rule, which is for no frontend.
type singleRule rule

func (singleRule) weight() int             { return 1 }
func (r singleRule) write(text *chainText) { text.own = nil; text.add(rule(r)) }

func (d *dispatch) chainName(p prefix) string {
	if p == whole {
		return d.enter
	}
	return p.chainName(d.start, d.addressBits)
}

func (d *dispatch) leaf(text *chainText, entries []*node) {
	for _, n := range entries {
		n.entry.(writer).write(text)
		text.comment = ""
	}
}

func (d *dispatch) inner(text *chainText, parts []*node) { d.jumps(text, parts, leave) }

// root jumps to chains that return, because the tail is for all packets.
func (d *dispatch) root(text *chainText, entries, parts []*node) {
	d.leaf(text, entries)
	d.jumps(text, parts, jump)
	text.own = nil
	for _, r := range d.tail {
		text.add(r)
	}
}

func (d *dispatch) jumps(text *chainText, parts []*node, how func(string) string) {
	for _, n := range parts {
		e := n.prefix.extent(d.addressBits)
		r := rule{destination: e.address, protocol: e.protocol}
		if e.protocol != "" && !e.allPorts() {
			r.port, r.last = e.from, e.to
		}
		r.target = how(d.chainName(n.prefix))
		if !n.prefix.exact(d.addressBits) {
			// It matches more packets than the chain is for, and those must go on.
			r.target = jump(d.chainName(n.prefix))
		}
		text.add(r)
	}
}

// treeName identifies a tree of a family.
type treeName uint8

// The trees.
const (
	serviceTree         treeName = iota // nat: addresses with ports, of Services
	nodePortTree                        // nat: node ports
	nodePortIPTree                      // nat: addresses of node ports
	hairpinTree                         // nat: endpoints, if BPF is not available to find hairpin connections
	refusedServiceTree                  // filter: ClusterIPs without endpoints
	refusedExternalTree                 // filter: external addresses without endpoints
	refusedPortTree                     // filter: node ports without endpoints
	refusedPortIPTree                   // filter: addresses of node ports
	firewallTree                        // filter: addresses with source ranges
	healthPortTree                      // filter: health check node ports
	treeCount
)

func (n treeName) table() string {
	if n <= hairpinTree {
		return nat
	}
	return filter
}

// newTrees makes the empty trees of a family.
func newTrees(words *wording) (trees [treeCount]*tree) {
	bits := words.addressBits
	kinds := [treeCount]*dispatch{
		serviceTree: {enter: servicesChain, start: addressesPrefix, addressBits: bits,
			tail: []rule{{target: jump(nodePortIPsChain)}}},
		nodePortTree:       {enter: nodePortsChain, start: portsPrefix},
		nodePortIPTree:     {enter: nodePortIPsChain, start: nodePortIPsPrefix, addressBits: bits},
		hairpinTree:        {enter: hairpinChain, start: hairpinPrefix, addressBits: bits},
		refusedServiceTree: {enter: servicesChain, start: addressesPrefix, addressBits: bits},
		refusedExternalTree: {enter: externalServicesChain, start: externalAddressesPrefix, addressBits: bits,
			tail: []rule{{target: jump(nodePortIPsChain)}}},
		refusedPortTree:   {enter: refusedPortsChain, start: portsPrefix},
		refusedPortIPTree: {enter: nodePortIPsChain, start: nodePortIPsPrefix, addressBits: bits},
		firewallTree:      {enter: firewallChain, start: firewallPrefix, addressBits: bits},
		healthPortTree:    {enter: nodePortsChain, start: healthPortsPrefix},
	}
	for i, kind := range kinds {
		trees[i] = newTree(kind, chainRules)
	}
	return trees
}
