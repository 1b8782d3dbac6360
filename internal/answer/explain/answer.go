package explain

import (
	"net/netip"
	"time"

	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/experiment"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// Reply is the answer to a question. A Service has an answer for each of its
// ports and families that the question may mean.
type Reply struct {
	// Flows is set if all packets of the question reach an endpoint, and the Service is not at
	// fault for other kinds of clients, or if the packet that was tried reached one.
	Flows bool   `json:"flows"`
	Mode  string `json:"mode"`
	Node  string `json:"node"`
	// Service is the verdict on the Service for clients of all kinds, or on those of its ports that
	// the question is about; nil if it asks for one kind of client, or for an address.
	Service *verdict.Service `json:"service,omitempty"`
	// Stale is why the answers may be out of date, "" if they are not.
	Stale   string   `json:"stale,omitempty"`
	Answers []Answer `json:"answers"`
	// Advisories are what is wrong with the configuration and the node, on which the
	// answers depend.
	Advisories []model.Problem `json:"advisories,omitempty"`
	// Omitted counts ports of the Service without an answer, because it has too many.
	Omitted int `json:"portsOmitted,omitempty"`
}

// Answer is what happens to one packet and why. The names of its fields in JSON
// are an interface and never change.
type Answer struct {
	// Verdict is whether the client gets an answer; it is untouched for a packet that is
	// for no Service. Cause is a plan.Cause, a verdict.Cause, no-such-service or not-in-sync.
	Verdict verdict.Word `json:"verdict"`
	Cause   string       `json:"cause"`
	// Fate is what the rules do to the packet, the text of a plan.Verdict; "" if that is not
	// known.
	Fate string `json:"fate,omitempty"`
	// Since is when the first connection failed, if traffic shows it.
	Since time.Time `json:"since,omitzero"`
	// Flows is set if the packet reaches an endpoint, and nothing is known against an answer.
	Flows   bool   `json:"flows"`
	Summary string `json:"summary"`

	// Tried is what a connection showed, nil if none was tried.
	Tried *experiment.Result `json:"tried,omitempty"`

	Packet   PacketAnswer    `json:"packet"`
	Service  *ServiceAnswer  `json:"service,omitempty"`
	Frontend *FrontendAnswer `json:"frontend,omitempty"`
	Steps    []Step          `json:"steps"`

	// Endpoints are those of the Service in the packet's family, and why they
	// are in the pool that the packet takes, or not. Omitted counts more of them.
	Endpoints []EndpointAnswer `json:"endpoints,omitempty"`
	Omitted   int              `json:"endpointsOmitted,omitempty"`

	Masquerade *MasqueradeAnswer `json:"masquerade,omitempty"`
	// SourceUnknown says that which address endpoints see is not for the proxy to decide.
	SourceUnknown bool `json:"sourceUnknown,omitempty"`
	// Direct is the way of the packet with direct return, nil without.
	Direct   *DirectAnswer `json:"direct,omitempty"`
	Status   *StatusAnswer `json:"status,omitempty"`
	Kernel   *KernelAnswer `json:"kernel,omitempty"`
	Problems []Advice      `json:"problems,omitempty"`
}

// PacketAnswer is the packet that an answer is about.
type PacketAnswer struct {
	From string `json:"from"` // pod, node or outside
	// Asked is how the question names the client, if it counts as another one.
	Asked       string     `json:"asked,omitempty"`
	Source      netip.Addr `json:"source,omitzero"`
	SourcePort  uint16     `json:"sourcePort,omitempty"` // of the client, if the question has one
	Interface   string     `json:"interface,omitempty"`
	Destination netip.Addr `json:"destination,omitzero"`
	Port        uint16     `json:"port,omitempty"`
	Protocol    string     `json:"protocol,omitempty"`
}

// ServiceAnswer is the Service that a packet is for.
type ServiceAnswer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      string `json:"port,omitempty"`
}

// DirectAnswer is the way of a packet with direct return.
type DirectAnswer struct {
	// Node and Slot are those of the client; empty and nil if they depend on its address or port, which the
	// question does not have.
	Node string `json:"node,omitempty"`
	Slot *int   `json:"slot,omitempty"`
	// Ordinary says that it takes the ordinary way, masqueraded, or, if Node is empty, that some clients do.
	Ordinary bool `json:"ordinary"`
	// Path is what is known of the way to Node, in a word; empty if it is this one.
	Path string `json:"path,omitempty"`
}

// FrontendAnswer is the frontend that a packet meets.
type FrontendAnswer struct {
	Address string   `json:"address"`
	Kind    string   `json:"kind"`
	Pool    string   `json:"pool"`   // cluster or local
	Origin  string   `json:"origin"` // of the pool
	Others  []string `json:"others,omitempty"`
}

// Step is one thing that happens to the packet.
type Step struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// EndpointAnswer is one endpoint in one slice.
type EndpointAnswer struct {
	Address     string `json:"address"` // with the port, if it has one
	Node        string `json:"node,omitempty"`
	Local       bool   `json:"local"`
	Slice       string `json:"slice"`
	In          bool   `json:"in"`
	Reason      string `json:"reason"`         // a word
	Text        string `json:"text,omitempty"` // the reason in words
	Masqueraded bool   `json:"masqueraded"`
	Weight      uint16 `json:"weight,omitempty"` // if those of the pool differ
	// Answers is what connections of such clients showed of it: fine, flaky, resets or
	// silent; "" if nothing can be seen. Failed counts those that failed since Since.
	Answers string    `json:"answers,omitempty"`
	Failed  uint64    `json:"failed,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// MasqueradeAnswer is whether endpoints see the node's address.
type MasqueradeAnswer struct {
	Yes    bool   `json:"yes"` // for all endpoints but perhaps the client itself
	Reason string `json:"reason"`
}

// StatusAnswer is the status of the frontend in the engine.
type StatusAnswer struct {
	Phase    string    `json:"phase"`
	Since    time.Time `json:"since"`
	Revision uint64    `json:"revision"`
	Error    string    `json:"error,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Retry    time.Time `json:"retry,omitzero"`
}

// KernelAnswer is what the kernel holds.
type KernelAnswer struct {
	// Of is what holds it in place of the kernel, such as HNS; empty for the kernel.
	Of          plan.System      `json:"of,omitempty"`
	Present     bool             `json:"present"`
	Objects     []KernelObject   `json:"objects,omitempty"`
	Endpoints   []netip.AddrPort `json:"endpoints,omitempty"` // of the pool that the packet takes
	Size        int              `json:"size"`                // how many there are
	Connections *uint64          `json:"connections,omitempty"`
	Refused     *uint64          `json:"refused,omitempty"`
	Remembered  string           `json:"remembered,omitempty"`
	ExpiresIn   string           `json:"expiresIn,omitempty"`
	Error       string           `json:"error,omitempty"`
}

// KernelObject is an object of the kernel.
type KernelObject struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// Advice is what keeps a packet from getting through, or might, and what to do
// about it.
type Advice struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// noService is the verdict on a packet to a Service that is not known.
const noService verdict.Word = noSuchService

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
