package history

import (
	"fmt"
	"time"

	"sluice/internal/base/printable"
	"sluice/internal/plan"
)

// Kind is what happened.
type Kind string

// The kinds of Events.
const (
	Started          Kind = "started"           // the first commit
	ServiceAdded     Kind = "service-added"     //
	ServiceChanged   Kind = "service-changed"   // other than its endpoints
	ServiceRemoved   Kind = "service-removed"   //
	EndpointAdded    Kind = "endpoint-added"    // gets new connections
	EndpointDraining Kind = "endpoint-draining" // keeps its connections, gets no new ones
	EndpointRemoved  Kind = "endpoint-removed"  //
	EndpointSilent   Kind = "endpoint-silent"   // does not answer clients
	EndpointResets   Kind = "endpoint-resets"   // nothing listens there
	EndpointAnswers  Kind = "endpoint-answers"  // again
	Failed           Kind = "failed"            // the kernel refused a frontend
	Refused          Kind = "refused"           // clients were refused
	NodeChanged      Kind = "node-changed"      // settings of the node
	Repaired         Kind = "repaired"          // the kernel's rules were compared or repaired
	More             Kind = "more"              // the commit was about more than was recorded
)

// Event is something that happened. The names of its fields in JSON, and the Kinds, are
// an interface and never change.
type Event struct {
	// ID counts Events, from 1 on. Later ones have higher numbers.
	ID   uint64    `json:"id"`
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	// Service is "namespace/name"; "" if the Event is about the node.
	Service string `json:"service,omitempty"`
	// Endpoint is its address and port.
	Endpoint string `json:"endpoint,omitempty"`
	// Frontend is the one that failed.
	Frontend string `json:"frontend,omitempty"`
	// Reason is why, as an identifier of plan, or an error message.
	Reason string `json:"reason,omitempty"`
	// Packets is how many asked for a connection and were refused, in the last Seconds.
	Packets uint64  `json:"packets,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Of is what was programmed in place of the kernel, such as HNS; empty for the kernel.
	Of plan.System `json:"of,omitempty"`
	// Detail is the rest, in words.
	Detail string `json:"detail,omitempty"`
	// Took is the duration of the commit, and Latency the time from the first event to
	// its end, in seconds.
	Took    float64 `json:"tookSeconds,omitempty"`
	Latency float64 `json:"latencySeconds,omitempty"`
}

// Text describes the Event, without its time and the name of the Service.
func (e *Event) Text() string {
	text := e.what()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Latency > 0 {
		text += fmt.Sprintf(" (in %s after %s)", e.Of, seconds(e.Latency))
	} else if e.Took > 0 {
		text += fmt.Sprintf(" (took %s)", seconds(e.Took))
	}
	return text
}

func (e *Event) what() string {
	switch e.Kind {
	case Started:
		return "all Services programmed"
	case ServiceAdded:
		return "Service added"
	case ServiceChanged:
		return "Service changed"
	case ServiceRemoved:
		return "Service removed"
	case EndpointAdded:
		return "endpoint " + e.Endpoint + " added"
	case EndpointDraining:
		return "endpoint " + e.Endpoint + " gets no new connections"
	case EndpointRemoved:
		return "endpoint " + e.Endpoint + " removed"
	case EndpointSilent:
		return "endpoint " + e.Endpoint + " does not answer"
	case EndpointResets:
		return "endpoint " + e.Endpoint + " refuses connections"
	case EndpointAnswers:
		return "endpoint " + e.Endpoint + " answers again"
	case Failed:
		return e.Of.String() + " refused " + e.Frontend
	case Refused:
		text := "refused " + printable.Count(int(e.Packets), "packet")
		if e.Seconds > 0 {
			text += " in " + seconds(e.Seconds)
		}
		return text
	case NodeChanged:
		return "node changed"
	case Repaired:
		return "rules repaired"
	}
	return string(e.Kind)
}

func seconds(s float64) string { return printable.Duration(time.Duration(s * float64(time.Second))) }
