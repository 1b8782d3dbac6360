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

// tableBudget decides which Services get lookup tables: the oldest, and among equally old
// ones the first by name, as long as there are some. That is the same on all nodes.
type tableBudget struct {
	wants   map[model.Name]tableWant
	refused map[model.Name]string // why
}

type tableWant struct {
	tables  int
	created time.Time
}

func newTableBudget() *tableBudget {
	return &tableBudget{wants: map[model.Name]tableWant{}, refused: map[model.Name]string{}}
}

// set records what a Service wants, which is nil if it is gone, and reports whether that changed.
func (b *tableBudget) set(env *environment, name model.Name, svc *model.Service) (changed bool) {
	var want tableWant
	if svc != nil && env.algorithmOf(svc) == model.Maglev && env.algorithms.Has(model.Maglev) {
		want = tableWant{tablesOf(svc), svc.Created}
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
	n := 0
	for _, f := range model.Families {
		if slices.ContainsFunc(svc.ClusterIPs, func(ip netip.Addr) bool { return model.FamilyOf(ip) == f }) {
			n += len(svc.Ports)
		}
	}
	if svc.ExternalPolicy == model.PolicyLocal && svc.InternalPolicy != model.PolicyLocal {
		n *= 2
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
		case ofNamespace[name.Namespace]+n > MaxMaglevTables:
			b.refused[name] = fmt.Sprintf("it would take %d lookup tables, one for each port and family, and the Services of a namespace have at most %d", n, MaxMaglevTables)
		case all+n > MaxMaglevTablesNode:
			b.refused[name] = fmt.Sprintf("it would take %d lookup tables, one for each port and family, and all Services together have at most %d", n, MaxMaglevTablesNode)
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
