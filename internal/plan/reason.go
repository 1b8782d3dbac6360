package plan

// Reason is why an endpoint is not in a pool; the zero Reason says that it is.
type Reason uint8

// The reasons.
const (
	InPool          Reason = iota
	OtherFamily            // its slice is of a family that the Service has no ClusterIP of
	MissingPort            // its slice lacks a port of the service port's name and protocol
	BadAddress             // no connection can go to its address
	NotReady               // it is not ready
	NotServing             // it is terminating and no longer serves
	Duplicate              // another slice, or another entry of this one, has it as well
	Terminating            // it serves but is terminating, and others are ready
	Drained                // its weight is 0
	HintedElsewhere        // its hints name other nodes or zones
	NotHere                // it is not on this node, and the pool is local
	Ejected                // connections to it are not answered
)

// String returns a stable identifier, for JSON.
func (r Reason) String() string {
	return [...]string{"in-pool", "other-family", "missing-port", "bad-address", "not-ready", "not-serving",
		"duplicate", "terminating", "drained", "hinted-elsewhere", "not-here", "ejected"}[r]
}

// Origin is how a pool was selected.
type Origin uint8

// The origins.
const (
	FromNothing     Origin = iota // it is empty
	FromReady                     // of all endpoints that are ready
	FromNodeHints                 // of those whose hints name this node
	FromZoneHints                 // of those whose hints name its zone
	FromTerminating               // of terminating ones, because none is ready
)

// String returns a stable identifier, for JSON.
func (o Origin) String() string {
	return [...]string{"empty", "ready", "node-hints", "zone-hints", "terminating"}[o]
}
