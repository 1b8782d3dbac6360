package verdict

import (
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/plan"
)

// Word is whether clients get an answer. Words are part of interfaces and never change.
type Word string

// The words, the worst first.
const (
	NoAnswer     Word = "no-answer"      // connections are forwarded, and nothing comes back
	Refused      Word = "refused"        // connections are rejected or dropped
	WorksForSome Word = "works-for-some" // clients of a kind, ports or a share of connections fail
	Unknown      Word = "unknown"        // the kernel does not have it yet
	Works        Word = "works"          // nothing is known against it
)

// Untouched is the word for packets that are left alone, for whoever else has the address. It is never that for a
// Service.
const Untouched Word = "untouched"

// Words are all of them, the worst first.
var Words = [...]Word{NoAnswer, Refused, WorksForSome, Unknown, Works}

// Text is the word for people.
func (w Word) Text() string {
	switch w {
	case NoAnswer:
		return "does not answer"
	case Refused:
		return "refused"
	case WorksForSome:
		return "works for some"
	case Unknown:
		return "unknown yet"
	case Works:
		return "works"
	}
	return string(w)
}

// rank orders words, the worst first.
func (w Word) rank() int {
	for i, other := range Words {
		if w == other {
			return i
		}
	}
	return len(Words)
}

// Compare orders words, the worst first.
func (w Word) Compare(o Word) int { return w.rank() - o.rank() }

// Failing reports whether no client gets an answer.
func (w Word) Failing() bool { return w == NoAnswer || w == Refused }

// both is the word for two parts of one thing.
func both(a, b Word) Word {
	switch {
	case a == b, b == Untouched:
		return a
	case a == Untouched:
		return b
	case a == Unknown || b == Unknown:
		return Unknown
	case a.Failing() && b.Failing():
		return NoAnswer
	}
	return WorksForSome
}

// Cause identifies why a Service does not simply work. The causes of package plan are used
// where connections are refused by its rules.
type Cause string

// The other causes.
const (
	InvalidObject     Cause = "invalid-object"     // the Service is malformed, and not used
	AddressTaken      Cause = "address-taken"      // another Service has its addresses
	PortsNotServed    Cause = "ports-not-served"   // the proxy mode cannot do what it asks for at some ports
	NoPorts           Cause = "no-frontend"        // nothing of it can be connected to on this node
	ProgrammingFailed Cause = "programming-failed" // the kernel does not take the rules
	NotProgrammed     Cause = "not-programmed"     // the kernel does not have the rules yet
	EndpointSilent    Cause = "endpoint-silent"    // an endpoint does not answer
	EndpointResets    Cause = "endpoint-resets"    // nothing listens at an endpoint

	ForwardingOff = Cause(nodeproblem.ForwardingOff)
	Firewall      = Cause(nodeproblem.Firewall)
	NoRoute       = Cause(nodeproblem.NoRoute)
	ConntrackFull = Cause(nodeproblem.ConntrackFull)
)

// earlierNames are those of causes in JSON of earlier builds, for one release.
var earlierNames = map[string]Cause{"object-refused": InvalidObject, "kernel-refused": ProgrammingFailed}

// UnmarshalText also reads the names of earlier builds.
func (c *Cause) UnmarshalText(text []byte) error {
	if *c = earlierNames[string(text)]; *c == "" {
		*c = Cause(text)
	}
	return nil
}

func causeOf(c plan.Cause) Cause { return Cause(c.String()) }
