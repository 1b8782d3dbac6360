package loopback

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/backoff"
	"sluice/internal/dataplane/relay"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// listenAddr is where a node port is served.
type listenAddr struct {
	address  netip.AddrPort
	protocol model.Protocol
}

func (p listenAddr) family() model.Family { return model.FamilyOf(p.address.Addr()) }

// port is a node port on one address.
type port struct {
	listenAddr
	frontend *plan.Frontend
	relay    *relay.Relay
	tries    backoff.Tries // to listen
}

// failed schedules the next try, and reports whether the reason is new.
func (p *port) failed(log logr.Logger, err error, now time.Time) (news bool) {
	pause, news := p.tries.Fail(err, now)
	log = log.WithValues("service", p.frontend.Service.String(), "address", p.address.String(), "protocol", p.protocol.String())
	if news {
		log.Error(err, "Cannot listen on a loopback node port", "remedy", remedy(err), "retry", pause)
		return true
	}
	log.V(1).Info("Still cannot listen on a loopback node port", "failures", p.tries.Failures(), "retry", pause)
	return false
}

func (p *port) succeeded(log logr.Logger) {
	if p.tries.Failures() > 0 {
		log.Info("Listening on a loopback node port", "service", p.frontend.Service.String(),
			"address", p.address.String(), "protocol", p.protocol.String())
	}
	p.tries.Succeed()
}

// remedy returns what an administrator can do about a failure to listen.
func remedy(err error) string {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return "give the address to the interface lo, or leave it out of --nodeport-addresses: 127.0.0.0/8 is localhost without IPv6"
	}
	return relay.Remedy(err)
}
