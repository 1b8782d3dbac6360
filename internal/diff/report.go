package diff

import "sluice/internal/model"

// What a Report holds at most, so that an answer stays one that can be read.
const (
	MostFrontends = 2000
	mostListed    = 100 // values of a list
)

// Report is what differs in a new plan from an old one.
type Report struct {
	// Added, Removed and Changed count the frontends that differ.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Frontends are those, by Service, at most MostFrontends of them.
	Frontends []Frontend `json:"frontends,omitempty"`
	// HealthChecks are health check node ports, Node is what holds for the whole
	// node, and Configuration are fields of a configuration.
	HealthChecks  []Change `json:"healthChecks,omitempty"`
	Node          []Change `json:"node,omitempty"`
	Configuration []Change `json:"configuration,omitempty"`
	// Problems are what is wrong with what the new plan was made from.
	Problems []string `json:"problems,omitempty"`
}

// Different tells whether the plans differ. Problems are no difference.
func (r *Report) Different() bool {
	return r.Added+r.Removed+r.Changed+len(r.HealthChecks)+len(r.Node)+len(r.Configuration) > 0
}

// Sort is how a frontend differs.
type Sort string

// The sorts.
const (
	Added   Sort = "added"
	Removed Sort = "removed"
	Changed Sort = "changed"
)

// Frontend is a frontend that differs.
type Frontend struct {
	Sort     Sort     `json:"change"`
	Service  string   `json:"service"` // namespace/name
	Port     string   `json:"port,omitempty"`
	Kind     string   `json:"kind"`
	Frontend string   `json:"frontend"` // address, port and protocol
	Details  []Change `json:"details,omitempty"`

	name model.Name
}

// Change is one thing that differs: it has another value, or is a list of which
// some come and some go.
type Change struct {
	What    string `json:"what"`
	Old     string `json:"old,omitempty"`
	New     string `json:"new,omitempty"`
	Come    *List  `json:"come,omitempty"`
	Go      *List  `json:"go,omitempty"`
	Restart string `json:"restart,omitempty"` // why it takes a new process, if it does
}

// List is the first of some values.
type List struct {
	Values []string `json:"values"`
	More   int      `json:"more,omitempty"` // that are not in Values
}

// add adds to a list, which may be nil.
func (l *List) add(value string) *List {
	if l == nil {
		l = &List{}
	}
	if len(l.Values) == mostListed {
		l.More++
	} else {
		l.Values = append(l.Values, value)
	}
	return l
}
