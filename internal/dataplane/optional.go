package dataplane

import (
	"context"
	"net/netip"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// ProgressReporter is a Dataplane that tells how far it is with Reconcile and Apply.
type ProgressReporter interface {
	// OnProgress has report called now and then during Reconcile and Apply. It
	// is called before the first of those, and report does not block.
	OnProgress(report func(Progress))
}

// Progress is how far a Reconcile or Apply is.
type Progress struct {
	Done, Total  int // frontends that are written, and that there are to write
	Transactions int
}

// Counter is a Dataplane that keeps metrics itself: the Counters of its Mode.
type Counter interface {
	// Count calls add with the value of each metric now, for some families. It
	// may be called at any time.
	Count(ctx context.Context, families []model.Family, add func(metric string, value float64, labels ...string))
}

// FamilyChecker is a Dataplane that may be able to do one family only.
type FamilyChecker interface {
	// CheckFamily reports what the node lacks for a family.
	CheckFamily(context.Context, model.Family) error
}

// Describer is a Dataplane that can show what the kernel holds for a frontend.
type Describer interface {
	// Describe reads what the kernel holds for a frontend and, if client is
	// valid, what it remembers of that client. It may be called by anybody at
	// any time, and costs in proportion to what the frontend has.
	Describe(ctx context.Context, at Destination, client netip.Addr) (Description, error)
}

// Destination is where a packet goes: a frontend, and the address by which it is
// reached, which for a node port is one of the node's.
type Destination struct {
	plan.Key
	IP netip.Addr
}

// Description is what the kernel holds for a frontend.
type Description struct {
	Present bool // there is something
	// Objects are the kernel's, in the words of the mechanism.
	Objects []Object
	// Route and Outside are the endpoints in the order of the kernel, at most
	// MaxDescribed of each. RouteSize and OutsideSize say how many there are.
	Route, Outside         []netip.AddrPort
	RouteSize, OutsideSize int
	// Counted says that new connections are counted, in Connections, and packets
	// that asked for one and were rejected or dropped in Refused.
	Counted              bool
	Connections, Refused uint64
	// Remembered are the endpoints that the client stays with, as long as its
	// packets may go there: clients can have different pools.
	Remembered []Remembered
}

// Remembered is an endpoint that a client stays with, and for how long yet.
type Remembered struct {
	Endpoint netip.AddrPort
	Expires  time.Duration
}

// MaxDescribed is how many endpoints of a pool are described.
const MaxDescribed = 100

// Object is an object of the kernel: where it is, what it says, for people.
type Object struct {
	Where, What string
}
