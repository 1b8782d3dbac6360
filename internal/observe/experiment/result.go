package experiment

import (
	"fmt"
	"net/netip"
	"time"

	"sluice/internal/model"
	"sluice/internal/observe/verdict"
)

// Timeout is how long an answer is waited for: long enough for a first packet that is sent
// again.
const Timeout = 3 * time.Second

// Outcome is how an attempt ended.
type Outcome string

// The outcomes. They are an interface and never change.
const (
	Answered Outcome = "answered"
	// ConnectionRefused is what a program sees of a reset or an ICMP error, whoever sent it.
	ConnectionRefused Outcome = "connection-refused"
	Silent            Outcome = "silent"  // nothing came back
	Untried           Outcome = "untried" // it cannot be tried
)

// Attempt is what to try.
type Attempt struct {
	To       netip.AddrPort
	Protocol model.Protocol
	// From is the network namespace to connect from; the zero one is the node's.
	From Namespace
	// Relayed says that it is the proxy that accepts the connection, and opens another one to
	// an endpoint.
	Relayed bool
}

// Result is what an attempt showed. The names of its fields in JSON are an interface and never
// change.
type Result struct {
	Outcome Outcome `json:"outcome"`
	// From is where the connection came from: this node, or a network namespace.
	From     string         `json:"from"`
	Client   netip.AddrPort `json:"client,omitzero"`
	To       netip.AddrPort `json:"to,omitzero"`
	Protocol string         `json:"protocol,omitempty"`
	// Endpoint is the one that the kernel chose, and SeenAs the address under which it sees the
	// client; zero if they are not known.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	SeenAs   netip.AddrPort `json:"seenAs,omitzero"`
	Seconds  float64        `json:"seconds,omitempty"`
	// HandedTo is the node that this one is to hand the client's packets to, which answers directly: then the connection
	// is not known here. Empty if there is none, or if it depends on the client's port.
	HandedTo string `json:"handedTo,omitempty"`
	Error    string `json:"error,omitempty"`
	// Expected says that this is what was predicted. Meaning is what it tells, and Remedy what
	// to do.
	Expected bool   `json:"expected"`
	Meaning  string `json:"meaning"`
	Remedy   string `json:"remedy,omitempty"`

	relayed bool
}

// Compare adds what the result means, given what was predicted for the same packet.
func (r *Result) Compare(predicted verdict.Word) {
	at := "the endpoint"
	if r.Endpoint.IsValid() {
		at = r.Endpoint.String()
	}
	works := predicted == verdict.Works || predicted == verdict.WorksForSome
	switch {
	case r.Outcome == Untried:
		r.Meaning = r.Error
	case r.Outcome == Silent && r.Protocol == model.UDP.String():
		r.Expected = works
		r.Meaning = "no reply to an empty datagram, which says little: programs may answer to their own protocol only"
		r.Remedy = "try it with a client of the protocol"
	case r.HandedTo != "" && works:
		r.handed()
	case r.Outcome == Answered && works:
		r.Expected, r.Meaning = true, "as predicted"
	case r.Outcome == Answered && predicted != verdict.Refused && predicted != verdict.NoAnswer && predicted != verdict.Unknown:
		r.Meaning = "no Service has this address and port here: something else answered"
	case r.Outcome == Answered:
		r.Meaning = fmt.Sprintf("it was predicted that it %s, and it works: what is known is out of date, or another program serves this address", saying(predicted))
		r.Remedy = "ask again in a few seconds, and look for another program that translates the address"
	case predicted == verdict.Refused || predicted == verdict.NoAnswer:
		r.Expected, r.Meaning = true, "as predicted"
	case r.Outcome == ConnectionRefused && r.Endpoint.IsValid():
		r.Meaning = fmt.Sprintf("the packet reached %s, which refused it: nothing listens on that port there, or a firewall rejects it", at)
		r.Remedy = "compare targetPort with the port that the program listens on (ss -ltn in the pod)"
	case r.relayed && !r.Endpoint.IsValid() && r.Outcome == ConnectionRefused:
		r.Meaning = "the proxy took the connection and ended it, without having reached an endpoint"
		r.Remedy = "see in status whether there are too many connections, and in the log why"
	case r.relayed && !r.Endpoint.IsValid():
		r.Meaning = "the proxy took the connection, and has not tried an endpoint yet"
		r.Remedy = "see in status whether there are too many connections"
	case r.Outcome == ConnectionRefused:
		r.Meaning = "it was refused, by an endpoint or by a firewall on the way"
		r.Remedy = "compare targetPort with the port that the program listens on (ss -ltn in the pod), and look for rules that reject"
	case r.Endpoint.IsValid():
		r.Meaning = fmt.Sprintf("the packet was sent to %s, and nothing came back: the pod is gone, or a firewall or network policy drops the packet or its answer", at)
		from := "this node"
		if r.SeenAs.IsValid() {
			from = r.SeenAs.Addr().String()
		}
		r.Remedy = fmt.Sprintf("see that the pod at %s runs, and that packets between %s and it pass", r.Endpoint.Addr(), from)
	default:
		r.Meaning = "nothing came back, and the kernel tracks no such connection: the packet was dropped before it was translated, or did not leave the client"
		r.Remedy = "look for rules that drop it at output or prerouting, and at the client's route to the address"
	}
}

// handed adds what the result means if the packets were to be handed to another node.
func (r *Result) handed() {
	switch {
	case r.Endpoint.IsValid():
		r.Meaning = fmt.Sprintf("it went to %s through this node, although node %s is to get it", r.Endpoint, r.HandedTo)
		r.Remedy = "ask again in a few seconds: what has changed is not handed on at once, and what comes through another device never is"
	case r.Outcome == Answered:
		r.Expected, r.Meaning = true, fmt.Sprintf("as predicted: this node hands it to node %s, which answers directly", r.HandedTo)
	case r.Outcome == ConnectionRefused:
		r.Meaning = fmt.Sprintf("this node hands it to node %s, and it was refused: there, by the endpoint or on the way", r.HandedTo)
		r.Remedy = fmt.Sprintf("ask kube-proxy explain on node %s", r.HandedTo)
	default:
		r.Meaning = fmt.Sprintf("this node hands it to node %s, and nothing came back", r.HandedTo)
		r.Remedy = fmt.Sprintf("ask kube-proxy explain on node %s, and look for what drops its answers, which come from the address of the Service", r.HandedTo)
	}
}

func saying(w verdict.Word) string {
	switch w {
	case verdict.Refused:
		return "is refused"
	case verdict.NoAnswer:
		return "gets no answer"
	}
	return "is not known to work"
}

// String says what happened.
func (r *Result) String() string {
	if r.Outcome == Untried {
		return "not tried: " + r.Error
	}
	text := string(r.Outcome)
	switch r.Outcome {
	case Silent:
		text = "no answer"
	case ConnectionRefused:
		text = "refused"
	}
	if r.Endpoint.IsValid() && r.Outcome == Answered || r.Outcome == ConnectionRefused && r.Endpoint.IsValid() {
		text += " by " + r.Endpoint.String()
	} else if r.Endpoint.IsValid() {
		text += " from " + r.Endpoint.String()
	}
	took, unit := time.Duration(r.Seconds*float64(time.Second)), 10*time.Microsecond
	if took >= time.Second { // a timeout, or as good as one
		unit = 100 * time.Millisecond
	}
	text += fmt.Sprintf(" after %s", took.Round(unit))
	if r.SeenAs.IsValid() {
		text += ", which sees " + r.SeenAs.Addr().String()
	}
	return text
}
