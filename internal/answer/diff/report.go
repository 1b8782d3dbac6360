package diff

import "sluice/internal/model"

// Limits of a Report, so that it stays readable.
const (
	MaxFrontends = 2000
	maxListed    = 100 // values of a list
)

// Report is how a new plan differs from an old one.
type Report struct {
	// Added, Removed and Changed count the frontends that differ.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
	// Frontends are the first MaxFrontends of them, by Service.
	Frontends []Frontend `json:"frontends,omitempty"`
	// HealthChecks are health check node ports, Node the settings of the node, and
	// Configuration fields of a configuration.
	HealthChecks  []Change `json:"healthChecks,omitempty"`
	Node          []Change `json:"node,omitempty"`
	Configuration []Change `json:"configuration,omitempty"`
	// Problems are those of the objects of the new plan, and NewProblems those of them
	// that the old one does not have.
	Problems    []string `json:"problems,omitempty"`
	NewProblems []string `json:"newProblems,omitempty"`
}

// Different reports whether the plans differ. Problems do not count.
func (r *Report) Different() bool {
	return r.Added+r.Removed+r.Changed+len(r.HealthChecks)+len(r.Node)+len(r.Configuration) > 0
}

// unlisted returns how many frontends differ and are not listed.
func (r *Report) unlisted() int { return r.Added + r.Removed + r.Changed - len(r.Frontends) }

// Action is how a frontend differs.
type Action string

// The actions.
const (
	Added   Action = "added"
	Removed Action = "removed"
	Changed Action = "changed"
)

// Frontend is a frontend that differs.
type Frontend struct {
	Action   Action   `json:"change"`
	Service  string   `json:"service"` // namespace/name
	Port     string   `json:"port,omitempty"`
	Kind     string   `json:"kind"`
	Frontend string   `json:"frontend"` // address, port and protocol
	Details  []Change `json:"details,omitempty"`
	Restart  string   `json:"restart,omitempty"` // why it needs a restart, if it does

	name model.Name
}

// Change is one difference: another value, or values added to and removed from a
// list.
type Change struct {
	What    string `json:"what"`
	Old     string `json:"old,omitempty"`
	New     string `json:"new,omitempty"`
	Added   *List  `json:"added,omitempty"`
	Removed *List  `json:"removed,omitempty"`
	Restart string `json:"restart,omitempty"` // why it needs a restart, if it does
}

// List is the first few of some values.
type List struct {
	Values []string `json:"values"`
	More   int      `json:"more,omitempty"` // that are not in Values
}

// add adds to a list, which may be nil.
func (l *List) add(value string) *List {
	if l == nil {
		l = &List{}
	}
	if len(l.Values) == maxListed {
		l.More++
	} else {
		l.Values = append(l.Values, value)
	}
	return l
}
