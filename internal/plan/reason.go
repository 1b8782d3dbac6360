package plan

// Reason says why an endpoint is not in a pool; the zero Reason says that it is.
type Reason uint8

// The reasons.
const (
	InPool          Reason = iota
	OtherFamily            // its slice is of a family that the Service has no ClusterIP of
	NoSuchPort             // its slice lacks a port of the service port's name and protocol
	BadAddress             // no connection can go to its address
	NotReady               // it is not ready
	NotServing             // it is terminating and no longer serves
	Duplicate              // another slice, or another place in this one, has it as well
	Terminating            // it serves but is terminating, and there are others that are ready
	HintedElsewhere        // its hints name other nodes or zones
	NotHere                // it is not on this node, and only those are asked for
)

// String is a word for programs.
func (r Reason) String() string {
	return [...]string{"in-pool", "other-family", "no-such-port", "bad-address", "not-ready", "not-serving",
		"duplicate", "terminating", "hinted-elsewhere", "not-here"}[r]
}

// Origin says how a pool came about.
type Origin uint8

// The origins.
const (
	FromNothing     Origin = iota // it is empty
	FromReady                     // of all endpoints that are ready
	FromNodeHints                 // of those whose hints name this node
	FromZoneHints                 // of those whose hints name its zone
	FromTerminating               // of terminating ones, because none is ready
)

// String is a word for programs.
func (o Origin) String() string {
	return [...]string{"empty", "ready", "node-hints", "zone-hints", "terminating"}[o]
}
