package web

import (
	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// maxDrawn is how many endpoints of a pool are drawn.
const maxDrawn = 6

// route is the way of a connection, to be drawn: from the client to the frontend, and
// to the endpoints.
type route struct {
	Client, Source string // the client, and the source address that it has
	Frontend, Kind string
	Pools          []drawnPool
	End            string // why it ends at the frontend, "" if it does not
}

// drawnPool are the endpoints on this node, or elsewhere.
type drawnPool struct {
	Place, Source string // Source is what the endpoints see, "" if it is not known
	Endpoints     []drawnEndpoint
	More          int
	Cut           bool // none of them answers
}

// drawnEndpoint is an endpoint, and what is known against it.
type drawnEndpoint struct{ Address, Against string }

var clientTexts = map[string]string{
	plan.PodClient.String(): "a pod", plan.NodeClient.String(): "this node", plan.OutsideClient.String(): "outside",
}

// routeOf returns the way of a connection, nil if it is not to a frontend.
func routeOf(a *explain.Answer) *route {
	if a.Frontend == nil {
		return nil
	}
	r := &route{Client: clientTexts[a.Packet.From], Source: "its own address", Frontend: a.Frontend.Address, Kind: a.Frontend.Kind}
	if a.Packet.Source.IsValid() {
		r.Source = a.Packet.Source.String()
	}
	for _, place := range []struct {
		text  string
		local bool
	}{{"on this node", true}, {"on other nodes", false}} {
		if p := poolAt(a.Endpoints, place.local, !a.SourceUnknown); len(p.Endpoints) > 0 {
			p.Place = place.text
			r.Pools = append(r.Pools, p)
		}
	}
	if len(r.Pools) == 0 || !reaches(a) {
		r.Pools, r.End = nil, a.Verdict.Text()
		if a.Verdict == verdict.Refused {
			r.End = a.Fate
		}
	}
	return r
}

// reaches reports whether connections get to an endpoint, answered or not.
func reaches(a *explain.Answer) bool {
	return a.Flows || a.Cause == string(verdict.EndpointSilent) || a.Cause == string(verdict.EndpointResets)
}

// poolAt returns the endpoints in use on this node, or on others. It may be known which source address they see.
func poolAt(all []explain.EndpointAnswer, local, known bool) (p drawnPool) {
	masqueraded, direct, failing, used := false, false, 0, 0
	for i := range all {
		e := &all[i]
		if !e.In || e.Local != local {
			continue
		}
		masqueraded, direct = masqueraded || e.Masqueraded, direct || !e.Masqueraded
		against := answersOf(e)
		if used++; against.Level == status.Bad {
			failing++
		}
		if len(p.Endpoints) == maxDrawn {
			p.More++
			continue
		}
		p.Endpoints = append(p.Endpoints, drawnEndpoint{e.Address, against.Word})
	}
	p.Cut = failing > 0 && failing == used
	switch {
	case !known:
	case masqueraded && direct:
		p.Source = "the client's address, or this node's"
	case masqueraded:
		p.Source = "this node's address"
	default:
		p.Source = "the client's address"
	}
	return p
}
