package plan

// Verdict is what happens to a packet that asks for a connection.
type Verdict uint8

// The verdicts.
const (
	Reject  Verdict = iota // the client is told
	Drop                   // the client is not told
	Forward                // it goes to an endpoint
)

func (v Verdict) String() string { return [...]string{"reject", "drop", "forward"}[v] }

// Cause is why a packet meets its verdict.
type Cause uint8

// The causes of refusals. Those before FrontendRefusals are of frontends.
const (
	NoEndpoints        Cause = iota // the Service has none that can be used
	NoLocalEndpoint                 // under traffic policy Local there are some, but not on this node
	SourceRange                     // the source is not in the load balancer's source ranges
	UnknownPort                     // of a ClusterIP in use
	UnallocatedAddress              // of a service CIDR, of no Service

	FrontendRefusals = UnknownPort
	Refusals         = UnallocatedAddress + 1
)

// String is a word for programs.
func (c Cause) String() string {
	return [...]string{"no-endpoints", "no-local-endpoints", "source-ranges", "no-such-port", "unused-address"}[c]
}

// Refusal is a verdict on connections that go nowhere, and its cause.
type Refusal struct {
	Verdict Verdict
	Cause   Cause
}
