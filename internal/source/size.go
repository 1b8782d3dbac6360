package source

import "sluice/internal/model"

// What the proxy needs in memory for what objects mean: their values, the plan, and what it knows of the
// rules. These are estimates, rather too little than too much, so that nothing is refused that has room.
const (
	serviceSize  = 1200
	frontendSize = 700
	sliceSize    = 600
	endpointSize = 180
	peerSize     = 400
)

// Size estimates how many bytes of memory the proxy needs for what events set.
func Size(events []model.Event) (n int64) {
	for _, e := range events {
		switch e := e.(type) {
		case model.SetService:
			addresses := len(e.ClusterIPs) + len(e.ExternalIPs) + len(e.LoadBalancerIPs) + len(e.RoutedIPs)
			n += serviceSize + int64(addresses*len(e.Ports))*frontendSize + int64(len(e.SourceRanges))*endpointSize
		case model.SetPeer:
			n += peerSize
		case model.SetSlice:
			n += sliceSize + int64(len(e.Endpoints)*max(1, len(e.Ports)))*endpointSize
		}
	}
	return n
}
