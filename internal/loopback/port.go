package loopback

import (
	"errors"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/relay"
)

// How long a port that could not be listened on waits for its next try.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// place is where a node port is served.
type place struct {
	address  netip.AddrPort
	protocol model.Protocol
}

func (p place) family() model.Family { return model.FamilyOf(p.address.Addr()) }

// port is a node port on one address.
type port struct {
	place
	frontend *plan.Frontend
	relay    *relay.Relay

	failures  int    // to listen, in a row
	lastError string // of these
	retry     time.Time
}

// failed plans the next try, and tells whether the reason is another than
// before.
func (p *port) failed(log logr.Logger, err error, now time.Time) (news bool) {
	delay := min(retryFirst<<min(p.failures, 16), retryMost)
	p.failures++
	p.retry = now.Add(delay)
	log = log.WithValues("service", p.frontend.Service.String(), "address", p.address.String(), "protocol", p.protocol.String())
	if text := err.Error(); text != p.lastError {
		p.lastError = text
		log.Error(err, "Cannot listen on a loopback node port", "remedy", remedy(err), "retry", delay)
		return true
	}
	log.V(1).Info("Still cannot listen on a loopback node port", "failures", p.failures, "retry", delay)
	return false
}

func (p *port) succeeded(log logr.Logger) {
	if p.failures > 0 {
		log.Info("Listening on a loopback node port", "service", p.frontend.Service.String(),
			"address", p.address.String(), "protocol", p.protocol.String())
	}
	p.failures, p.lastError = 0, ""
}

// remedy says what whoever runs the node can do about a failure to listen.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "end the program that uses the port (ss -lntup shows it), or give the Service another nodePort"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "give the address to the interface lo, or leave it out of --nodeport-addresses: 127.0.0.0/8 is localhost without IPv6"
	}
	return "none needed if it passes: it is tried again"
}
