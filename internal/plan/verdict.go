package plan

// Verdict is what happens to a packet that asks for a connection.
type Verdict uint8

// The verdicts.
const (
	Reject  Verdict = iota // the client is told
	Drop                   // the client is not told
	Forward                // it goes to an endpoint
	Pass                   // no Service's: it goes on as it is
)

func (v Verdict) String() string { return [...]string{"reject", "drop", "forward", "pass"}[v] }

// Cause is why a packet meets its verdict.
type Cause uint8

// The causes. Those before NumRefusals are of refusals, and those before
// NumFrontendRefusals of refusals by frontends.
const (
	NoEndpoints        Cause = iota // the Service has none that can be used
	NoLocalEndpoint                 // under traffic policy Local there are some, but not on this node
	SourceRange                     // the source is not in the load balancer's source ranges
	UnknownPort                     // of a ClusterIP in use
	UnallocatedAddress              // of a service CIDR, of no Service
	HasEndpoint                     // the frontend has one for it
	NotAService                     // no Service has the address and port
	NoIPv6                          // the node does none

	NumFrontendRefusals = UnknownPort
	NumRefusals         = HasEndpoint
)

// String is a word for programs.
func (c Cause) String() string {
	return [...]string{"no-endpoints", "no-local-endpoints", "source-ranges", "no-such-port", "unused-address",
		"frontend", "not-a-service", "no-ipv6"}[c]
}

// Refusal is a verdict on connections that go nowhere, and its cause.
type Refusal struct {
	Verdict Verdict
	Cause   Cause
}
