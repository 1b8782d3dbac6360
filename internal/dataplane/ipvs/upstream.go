package ipvs

import "sluice/internal/ipvs"

type upstream struct{}

func findUpstream(int) (*upstream, error) { return &upstream{}, nil }

func (u *upstream) owns(ipvs.Key) bool { return false }
