//go:build !linux

package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/model"
)

// lookEvery is how often the addresses are read: not every system reports changes.
const lookEvery = 5 * time.Second

// Options configures a Source.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock
}

// Source follows the addresses of the machine's interfaces.
type Source struct{ Options }

// New returns a Source.
func New(o Options) *Source { return &Source{o} }

// Run passes the addresses to sink, initially and whenever they change, until ctx is
// done.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	var last []netip.Addr
	for synced := false; ; {
		ips, err := addresses()
		switch {
		case err != nil:
			s.Logger.Error(err, "Cannot read the machine's addresses, trying again", "after", lookEvery)
		case !synced || !slices.Equal(last, ips):
			sink.Update(model.SetHostIPs{IPs: ips})
			last = ips
		}
		if err == nil && !synced {
			synced = true
			sink.Synced()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(lookEvery):
		}
	}
}

// addresses returns the addresses of all interfaces, sorted and without duplicates.
func addresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	var ips []netip.Addr
	for _, a := range list {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(network.IP)
		if ip = ip.Unmap(); ok && !(ip.Is6() && ip.IsLinkLocalUnicast()) {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips), nil
}

// InterfaceTo returns "": the routing table is not known.
func InterfaceTo(netip.Addr) string { return "" }

// IsLocal reports whether an address is on an interface of this machine.
func IsLocal(addr netip.Addr) (bool, error) {
	ips, err := addresses()
	return slices.Contains(ips, addr), err
}
