package model

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"sluice/internal/base/printable"
)

// Ejection says that connections to an endpoint of a Service are not answered: for a while it gets
// no new ones, if the Service asks for that.
type Ejection struct {
	Endpoint netip.AddrPort
	Protocol Protocol
	// Refusing says that a reset came back, and not nothing.
	Refusing bool
	// Attempts is how many connections failed, and Since when the first of them did.
	Attempts int
	Since    time.Time
	// Until is when it gets new connections again, on trial. OnTrial says that it does now: it is not
	// left out, but nobody knows yet whether it answers.
	Until   time.Time
	OnTrial bool
}

// Text says what the endpoint did, and when it is tried again, for those who read it later.
func (e *Ejection) Text() string { return e.text("at " + e.Until.UTC().Format(clock)) }

// TextNow is Text for those who read it now.
func (e *Ejection) TextNow(now time.Time) string {
	if left := e.Until.Sub(now); left > 0 {
		return e.text(fmt.Sprintf("in %.0f s", math.Ceil(left.Seconds())))
	}
	return e.text("now")
}

const clock = "15:04:05 UTC"

func (e *Ejection) text(next string) string {
	did := "unanswered"
	if e.Refusing {
		did = "refused"
	}
	return fmt.Sprintf("left out: %s %s since %s, next trial %s",
		printable.Count(e.Attempts, "connection"), did, e.Since.UTC().Format(clock), next)
}

// SetEjected replaces the ejected endpoints of a Service, which are sorted. They stay while the Service is
// gone, in case that it comes back: who found them takes them back.
type SetEjected struct {
	Service   Name
	Endpoints []Ejection
}

func (e SetEjected) apply(s *State, d *Dirty) {
	if slices.Equal(s.ejected[e.Service], e.Endpoints) {
		return
	}
	if len(e.Endpoints) == 0 {
		delete(s.ejected, e.Service)
	} else {
		if s.ejected == nil {
			s.ejected = map[Name][]Ejection{}
		}
		s.ejected[e.Service] = e.Endpoints
	}
	if s.services[e.Service] != nil {
		s.revision++
		d.service(e.Service)
	}
}

// Ejected returns the ejected endpoints of a Service. The list is immutable.
func (s *State) Ejected(service Name) []Ejection { return s.ejected[service] }
