package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/model"
)

// How many lookup tables the Services of a namespace and all Services together may have.
// A table has thousands of entries whatever the Service is like, so that they would be a
// cheap way to use up the node's memory.
const (
	MaxMaglevTables     = 32
	MaxMaglevTablesNode = 128
)

// tableBudget decides which Services get lookup tables of a kind: the oldest, and among equally old
// ones the first by name, as long as there are some. That is the same on all nodes.
type tableBudget struct {
	// needed is how many a Service wants.
	needed func(*environment, *model.Service) int
	// ofNamespace and onNode are how many there are at most.
	ofNamespace, onNode int

	wants   map[model.Name]tableWant
	refused map[model.Name]string // why
}

type tableWant struct {
	tables  int
	created time.Time
}

func newTableBudget(ofNamespace, onNode int, needed func(*environment, *model.Service) int) *tableBudget {
	return &tableBudget{needed: needed, ofNamespace: ofNamespace, onNode: onNode,
		wants: map[model.Name]tableWant{}, refused: map[model.Name]string{}}
}

// maglevTables is how many lookup tables the algorithm of a Service takes.
func maglevTables(env *environment, svc *model.Service) int {
	if env.algorithmOf(svc) != model.Maglev || !env.algorithms.Has(model.Maglev) {
		return 0
	}
	return tablesOf(svc)
}

// set records what a Service wants, which is nil if it is gone, and reports whether that changed.
func (b *tableBudget) set(env *environment, name model.Name, svc *model.Service) (changed bool) {
	var want tableWant
	if svc != nil {
		if n := b.needed(env, svc); n > 0 {
			want = tableWant{n, svc.Created}
		}
	}
	before, had := b.wants[name]
	switch {
	case want.tables == 0 && !had, before.tables == want.tables && before.created.Equal(want.created):
		return false
	case want.tables == 0:
		delete(b.wants, name)
	default:
		b.wants[name] = want
	}
	return true
}

// tablesOf is how many lookup tables a Service has on a node: each port and family has one, and
// one more for clients outside if they have other endpoints. It does not depend on the node.
func tablesOf(svc *model.Service) int {
	n := perPort(svc)
	if svc.ExternalPolicy == model.PolicyLocal && svc.InternalPolicy != model.PolicyLocal {
		n *= 2
	}
	return n
}

// perPort is how many there are of what each port and family of a Service has one.
func perPort(svc *model.Service) (n int) {
	for _, f := range model.Families {
		if slices.ContainsFunc(svc.ClusterIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == f }) {
			n += len(svc.Ports)
		}
	}
	return n
}

// settle decides anew, and returns the Services for which that changed.
func (b *tableBudget) settle() (changed []model.Name) {
	before := b.refused
	b.refused = map[model.Name]string{}
	inOrder := slices.SortedFunc(maps.Keys(b.wants), func(x, y model.Name) int {
		return cmp.Or(b.wants[x].created.Compare(b.wants[y].created), x.Compare(y))
	})
	all, ofNamespace := 0, map[string]int{}
	for _, name := range inOrder {
		n := b.wants[name].tables
		switch {
		case ofNamespace[name.Namespace]+n > b.ofNamespace:
			b.refused[name] = fmt.Sprintf("it would take %d lookup tables, one for each port and family, and the Services of a namespace have at most %d", n, b.ofNamespace)
		case all+n > b.onNode:
			b.refused[name] = fmt.Sprintf("it would take %d lookup tables, one for each port and family, and all Services together have at most %d", n, b.onNode)
		default:
			ofNamespace[name.Namespace] += n
			all += n
		}
	}
	for name := range b.refused {
		if before[name] != b.refused[name] {
			changed = append(changed, name)
		}
	}
	for name := range before {
		if _, still := b.refused[name]; !still {
			changed = append(changed, name)
		}
	}
	return changed
}
