package model

import "strings"

// Algorithm is how a Service chooses the endpoint of a new connection. Each of
// them respects weights.
type Algorithm uint8

// The algorithms.
const (
	Random           Algorithm = iota
	RoundRobin                 // one after the other
	SourceHash                 // by the client's address
	Maglev                     // the same, and few clients move when the endpoints change
	LeastConnections           // the endpoint with the fewest connections
)

var algorithmNames = [...]string{"random", "round-robin", "source-hash", "maglev", "least-connections"}

func (a Algorithm) String() string { return algorithmNames[a] }

// Algorithms is a set of algorithms. It always contains Random.
type Algorithms uint8

// NewAlgorithms returns the set of these algorithms, and Random.
func NewAlgorithms(list ...Algorithm) Algorithms {
	var s Algorithms
	for _, a := range list {
		s |= 1 << a
	}
	return s
}

// Has reports whether an algorithm is in the set.
func (s Algorithms) Has(a Algorithm) bool { return a == Random || s&(1<<a) != 0 }

// String lists the names.
func (s Algorithms) String() string {
	var names []string
	for a := range Algorithm(len(algorithmNames)) {
		if s.Has(a) {
			names = append(names, a.String())
		}
	}
	return strings.Join(names, ", ")
}

// DefaultWeight is the weight of endpoints whose slice has none.
const DefaultWeight = 100
