package iptables

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

// table is the table that a tree is in.
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
