package nftables

import (
	"errors"

	"sluice/internal/nft"
)

// suspects are what others changed, or may have changed, in our tables. They are
// looked at and mended by Repair, with work in proportion to their number.
type suspects struct {
	// structure says that it is a table, a chain, a rule or a set as such.
	structure bool
	elements  map[suspect]struct{}
	// tooMany says that it is quicker to compare everything.
	tooMany bool
}

// suspect is an element of a set, present or not.
type suspect struct {
	family   nft.Family
	set, key string
}

func suspectOf(f nft.Family, o *op) suspect {
	return suspect{f, o.set, string(o.element.Key)}
}

// element is the key of the element.
func (s suspect) element() nft.Element { return nft.Element{Key: []byte(s.key)} }

// manySuspects is from how many elements on everything is compared.
const manySuspects = 20_000

// errTooMuch is why Repair leaves it to Reconcile.
var errTooMuch = errors.New("too much was changed to look at each")

func (s *suspects) empty() bool { return !s.structure && !s.tooMany && len(s.elements) == 0 }

// take adds what a notice tells.
func (s *suspects) take(n nft.Notice) {
	if n.Set == "" {
		s.structure = true
	}
	for i := range n.Elements {
		s.add(n.Family, n.Set, &n.Elements[i])
	}
}

func (s *suspects) add(f nft.Family, set string, e *nft.Element) {
	if s.tooMany {
		return
	}
	if s.elements == nil {
		s.elements = map[suspect]struct{}{}
	}
	s.elements[suspect{f, set, string(e.Key)}] = struct{}{}
	if len(s.elements) > manySuspects {
		s.tooMany, s.elements = true, nil
	}
}

// addOps adds the elements of operations.
func (s *suspects) addOps(f nft.Family, ops []op) {
	for i := range ops {
		s.add(f, ops[i].set, &ops[i].element)
	}
}

// join adds other suspects.
func (s *suspects) join(o *suspects) {
	s.structure, s.tooMany = s.structure || o.structure, s.tooMany || o.tooMany
	for e := range o.elements {
		key := e.element()
		s.add(e.family, e.set, &key)
	}
}

// frontendSets are the sets of elements that belong to one frontend each, and whether
// that is a node port.
var frontendSets = map[string]bool{
	services: false, outside: false, recalls: false, sticky: false, endpoints: false, localEndpoints: false,
	sources: false, filters: false,
	nodePorts: true, nodePortOutside: true, nodePortRecalls: true, nodePortSticky: true,
	nodePortEndpoints: true, nodePortLocal: true,
}

// slotMaps are the maps of endpoints.
var slotMaps = map[string]struct{}{endpoints: {}, localEndpoints: {}, nodePortEndpoints: {}, nodePortLocal: {}}

// clientMaps are written by the packet path: whatever is in them is right.
var clientMaps = []string{affinity, localAffinity}
