package dataplane

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// ProgressReporter is a Dataplane that reports the progress of Reconcile and
// Apply.
type ProgressReporter interface {
	// OnProgress sets a function to be called now and then during Reconcile and
	// Apply. OnProgress is called before the first of those, and report does
	// not block.
	OnProgress(report func(Progress))
}

// Progress is how far a Reconcile or Apply is.
type Progress struct {
	Done, Total  int // frontends that are written, and all that are to be written
	Transactions int
}

// Portioner is a Dataplane that knows how much it is best given at a time, because each Apply has a price
// of its own.
type Portioner interface {
	// Portion returns about how many elements that is. It is called by who calls Apply, between two of those.
	Portion() int
}

// Counter is a Dataplane that keeps metrics itself: the Counters of its Mode.
type Counter interface {
	// Count calls add with the value of each metric now, for some families. It
	// may be called at any time.
	Count(ctx context.Context, families []model.Family, add func(metric string, value float64, labels ...string))
}

// Forwarder is a Dataplane that forwards connections itself.
type Forwarder interface {
	// Forwards reports whether connections are led to an address to be forwarded. It
	// may be called at any time.
	Forwards(netip.AddrPort) bool
	// Connections returns how many connections of TCP are forwarded now, and how many
	// can be at a time. It may be called at any time.
	Connections() (now, limit int)
	// Finish serves existing connections until none is left or ctx ends, and returns
	// how many are left. It is called once, after the last commit and before Close.
	// Another process may program the kernel meanwhile, which succeeded reports.
	Finish(ctx context.Context, succeeded func() bool) (left int)
}

// FamilyChecker is a Dataplane that may be able to do one family only.
type FamilyChecker interface {
	// CheckFamily reports what the node lacks for a family.
	CheckFamily(context.Context, model.Family) error
}

// Describer is a Dataplane that can show what the kernel holds for a frontend.
type Describer interface {
	// Describe reads what the kernel holds for a frontend and, if client is
	// valid, the affinity of that client. Any goroutine may call it at any
	// time; its cost is proportional to the size of the frontend.
	Describe(ctx context.Context, at Destination, client netip.Addr) (Description, error)
}

// Destination is where a packet goes: a frontend, and the address by which it
// is reached, which for a node port is one of the node's.
type Destination struct {
	plan.Key
	IP netip.Addr
}

// Description is what the kernel holds for a frontend.
type Description struct {
	Present bool // the kernel holds something
	// Objects are the kernel objects, in terms of the mechanism.
	Objects []Object
	// Route and Outside are the endpoints in the kernel's order, at most
	// MaxDescribed of each. RouteSize and OutsideSize say how many there are.
	Route, Outside         []netip.AddrPort
	RouteSize, OutsideSize int
	// Counted says that new connections are counted, in Connections, and
	// packets that tried to open one and were rejected or dropped in Refused.
	Counted              bool
	Connections, Refused uint64
	// Remembered are the endpoints that the client has affinity to, for as long
	// as its packets may go there: there can be several, since clients can have
	// different pools.
	Remembered []Remembered
}

// Plan sets the endpoints to those of the plan, for modes in which the proxy itself connects to them.
func (d *Description) Plan(f *plan.Frontend) {
	of := func(r *plan.Route) (some []netip.AddrPort, size int) {
		for _, e := range r.Endpoints[:min(len(r.Endpoints), MaxDescribed)] {
			some = append(some, e.AddrPort)
		}
		return some, len(r.Endpoints)
	}
	d.Route, d.RouteSize = of(&f.Route)
	if f.Outside != nil {
		d.Outside, d.OutsideSize = of(f.Outside)
	}
}

// Remembered is an endpoint that a client has affinity to, and when that
// expires.
type Remembered struct {
	Endpoint netip.AddrPort
	Expires  time.Duration
}

// MaxDescribed is how many endpoints of a pool are described.
const MaxDescribed = 100

// Object is a kernel object, for humans: where it is, and its contents.
type Object struct {
	Where, What string
}

// Forgetter is a Dataplane whose connections the kernel remembers elsewhere than in
// connection tracking.
type Forgetter interface {
	// Forget makes the kernel forget connections to endpoints that left. It returns when
	// their packets are handled like those of unknown connections.
	Forget(context.Context, []Lost) error
}

// Lost is an endpoint that a frontend no longer has.
type Lost struct {
	Frontend plan.Key // of a node port: at the address that clients send to
	Endpoint netip.AddrPort
}

// Witness is a Dataplane that notices how the endpoints of watched routes answer new connections.
// What it tells is bounded, and does not grow with the number of connections.
type Witness interface {
	// Watch replaces the endpoints that are watched, of which some are on trial, and mends what another
	// program has changed of what it needs. With ErrTooManyWatched it has done so for as many as it can.
	Watch(context.Context, map[Target]OnTrial) error
	// Failures returns whose connections were not answered in the last few seconds.
	Failures(context.Context) ([]Failure, error)
	// Seen returns what was seen of endpoints in the last few seconds.
	Seen(context.Context, []Target) (map[Target]Seen, error)
}

// ErrTooManyWatched is returned if more endpoints are to be watched than can be.
var ErrTooManyWatched = errors.New("of some endpoints it is not seen whether they answer")

// OnTrial says that it matters whether a client tried to connect to an endpoint, and not only how that ended.
type OnTrial = bool

// Seen is when something was seen of an endpoint; a time is zero if it was not.
type Seen struct {
	Answered time.Time // when it last accepted a connection
	Tried    time.Time // when a client began to connect to it, which is on trial, as far as remembered the first
}

// Target is an endpoint as the destination of connections.
type Target struct {
	netip.AddrPort
	Protocol model.Protocol
}

// Compare returns -1, 0 or 1, by address, port and protocol.
func (t Target) Compare(o Target) int {
	return cmp.Or(t.AddrPort.Compare(o.AddrPort), cmp.Compare(t.Protocol, o.Protocol))
}

// Failure is what happened to connections of a client that were not answered.
type Failure struct {
	Target
	Client netip.Addr
	// Refused says that resets, or errors, came back at once. Otherwise the client repeated first packets.
	Refused bool
	// Packets is how many resets came back or packets were repeated since there is such a Failure, and
	// At when the last one was. Its connection began so long before.
	Packets uint64
	At      time.Time
	Waited  time.Duration
}

// LoopbackCounter is a Dataplane that counts packets of programs on the node to ports at loopback
// addresses.
type LoopbackCounter interface {
	// CountLoopback replaces the ports whose packets are counted, and says whether they are rejected.
	// Without ports nothing is left in the kernel.
	CountLoopback(ctx context.Context, ports map[LoopbackPort]struct{}, reject bool) error
	// LoopbackPackets returns how many packets there were since something was counted first. It never
	// becomes less, whatever is counted.
	LoopbackPackets(context.Context) (map[LoopbackPackets]uint64, error)
}

// LoopbackPort is a port of all loopback addresses of a family.
type LoopbackPort struct {
	LoopbackPackets
	Port uint16
}

// LoopbackPackets are those of a family and protocol.
type LoopbackPackets struct {
	Family   model.Family
	Protocol model.Protocol
}

// Attempt is one of the proxy to connect a client to an endpoint, and how it ended.
type Attempt struct {
	Client   netip.AddrPort // as the proxy sees it
	Endpoint netip.AddrPort
	Protocol model.Protocol
	Outcome  Outcome
	Took     time.Duration
}

// Outcome is how an Attempt ended.
type Outcome uint8

// The outcomes.
const (
	Accepted   Outcome = iota // the endpoint is connected to
	Refused                   // the endpoint, or who is in its place, refused
	Unanswered                // nobody answered
)
