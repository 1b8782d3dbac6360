package leftover

import (
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/localroute"
)

// OwnerTimeout marks the virtual services that this proxy made. The kernel keeps the
// persistence timeout of a service that is not persistent, and uses it for nothing.
// Services without it belong to others and are never changed.
const OwnerTimeout = 51_007

// Owned reports whether this proxy made a virtual service.
func Owned(s ipvs.Service) bool {
	return s.Timeout == OwnerTimeout && s.Flags&ipvs.Persistent == 0
}

// ownTable has the routes to virtual services of this proxy.
const ownTable = 51_007

// OpenRoutes opens the routes to virtual services of this proxy, in a network namespace, given as
// an open file descriptor; 0 is the caller's own.
func OpenRoutes(fd int) (*localroute.Table, error) { return localroute.Open(fd, ownTable, 0) }
