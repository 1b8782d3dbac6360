package ipvs

import "sluice/internal/kernel/ipvs"

// ownerTimeout marks the virtual services that this proxy made. The kernel keeps the
// persistence timeout of a service that is not persistent, and uses it for nothing.
// Services without it belong to others and are never changed.
const ownerTimeout = 51_007

// owned reports whether this proxy made a virtual service.
func owned(s ipvs.Service) bool {
	return s.Timeout == ownerTimeout && s.Flags&ipvs.Persistent == 0
}
