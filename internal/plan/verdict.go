package plan

// Verdict is what happens to a packet that opens a connection.
type Verdict uint8

// The verdicts.
const (
	Reject  Verdict = iota // the client gets an error
	Drop                   // the client gets no answer
	Forward                // it goes to an endpoint
	Pass                   // not for a Service: left alone
)

func (v Verdict) String() string { return [...]string{"reject", "drop", "forward", "pass"}[v] }

// Cause is why a packet gets its verdict.
type Cause uint8

// The causes. Those before NumRefusals refuse connections, and those
// before NumFrontendRefusals do so at a frontend.
const (
	NoEndpoints      Cause = iota // the Service has no usable endpoint
	NoLocalEndpoints              // under traffic policy Local there are some, but not on this node
	SourceRanges                  // the source is not in the load balancer's source ranges
	NoSuchPort                    // an address of a Service has no such port
	UnusedAddress                 // in a service CIDR, but of no Service
	HasEndpoint                   // the frontend has an endpoint for it
	NotAService                   // no Service has the address and port
	NoIPv6                        // the node does not support it
	NodePortsOnly                 // the proxy serves node ports only, and it is none

	NumFrontendRefusals = NoSuchPort
	NumRefusals         = HasEndpoint
)

// String returns a stable identifier, the same in JSON, metrics and answers.
func (c Cause) String() string {
	return [...]string{"no-endpoints", "no-local-endpoints", "source-ranges", "no-such-port", "unused-address",
		"frontend", "not-a-service", "no-ipv6", "node-ports-only"}[c]
}

// Refusal is the verdict on connections that have no endpoint, and its cause.
type Refusal struct {
	Verdict Verdict
	Cause   Cause
}
