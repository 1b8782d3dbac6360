package explain

import (
	"net/netip"

	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// Verdicts on a packet that is for no Service, and on one to a Service that is not known.
const (
	untouched verdict.Word = "untouched"
	noService verdict.Word = noSuchService
)

// Causes of answers that are not decided by plan.
const (
	noSuchService = "no-such-service" // no Service of that name is known
	notInSync     = "not-in-sync"     // the proxy does not know the cluster yet
)

// result is all that is known of one packet. Nothing in it belongs to the engine:
// it stays valid after the view is gone.
type result struct {
	packet   plan.Packet
	said     string // how the question names the client
	in       string // the interface that the packet arrives through, "" if unknown
	detector plan.Detector
	// detectsOther says that pods of the other family are recognised.
	detectsOther bool
	// undecided is the cause if there is no decision, because nothing is known that
	// a packet could go to; "" otherwise.
	undecided string
	decision  plan.Decision
	// verdict is on the decision, if there is a frontend, and answers what is known of
	// endpoints.
	verdict  verdict.Client
	answers  func(evidence.To) evidence.Report
	service  model.Name // of the frontend or ClusterIP; empty for none
	evidence plan.Evidence
	// unlabelled are slices of the namespace that belong to no Service, if this one has none.
	unlabelled []model.Name
	// taken is a frontend that the question is about and another Service has; nil if there is none.
	taken    *plan.Lost
	problems []model.Problem // of the Service and its slices
	// others are the other frontends of the service port.
	others      []*plan.Frontend
	suggestions []suggestion
}

// relayed reports whether it is the proxy that accepts the connection of such a packet.
func (r *result) relayed() bool {
	f := r.decision.Frontend
	return f != nil && (f.ProxyConnects || r.decision.Loopback)
}

// suggestion is something close to what the question asks for.
type suggestion struct {
	kind suggestionKind
	// What it is about; which of these are set depends on the kind.
	service model.Name
	ports   []model.ServicePort
	ips     []netip.Addr
}

type suggestionKind uint8

const (
	hasPorts         suggestionKind = iota // the Service of the address has these ports
	otherProtocol                          // the node port exists for another protocol
	similarName                            // a Service has a similar name
	sameName                               // a Service of that name is in another namespace
	isEndpoint                             // the address is an endpoint of the Service
	otherFamily                            // the node port exists for the other family
	nodePortIPs                            // the node port is the Service's, but at other addresses
	orphanSlices                           // there are slices for a Service that is not known
	onlyClusterIP                          // the Service has no frontend for clients outside
	noPorts                                // the client can use nothing of the Service
	unservedLoopback                       // node ports are not served on loopback
)
