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
// to the endpoints; with direct return by way of the node that answers.
type route struct {
	Client, Source string // the client, and the source address that it has
	Frontend, Kind string
	Pools          []drawnPool
	End            string // why it ends at the frontend, "" if it does not
}

// drawnPool are the endpoints on this node, or elsewhere.
type drawnPool struct {
	Place, Source string // Source is what the endpoints see, "" if it is not known
	Next          string // the node that packets are handed to and that answers, "" if they are not handed on
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
	next := nextNode(a)
	for _, place := range []struct {
		text, next string
		local      bool
	}{{"on this node", "", true}, {"on other nodes", next, false}} {
		if p := poolAt(a, place.local); len(p.Endpoints) > 0 {
			p.Place, p.Next = place.text, place.next
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

// nextNode is who packets are handed to, if they are, "" if they are not.
func nextNode(a *explain.Answer) string {
	switch d := a.Direct; {
	case d == nil || d.Ordinary || d.Node != "" && d.Path == "":
		return ""
	case d.Node == "":
		return "the node of its slot"
	default:
		return "node " + d.Node
	}
}

// takes reports whether the client's connections may go to an endpoint: with direct return to those of its node only.
func takes(d *explain.DirectAnswer, e *explain.EndpointAnswer) bool {
	switch {
	case d == nil || d.Ordinary || d.Node == "":
		return true
	case d.Path == "":
		return e.Local
	}
	return e.Node == d.Node
}

// poolAt returns the endpoints in use on this node, or on others.
func poolAt(a *explain.Answer, local bool) (p drawnPool) {
	masqueraded, direct, failing, used := false, false, 0, 0
	for i := range a.Endpoints {
		e := &a.Endpoints[i]
		if !e.In || e.Local != local || !takes(a.Direct, e) {
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
	case a.SourceUnknown:
	case masqueraded && direct:
		p.Source = "the client's address, or this node's"
	case masqueraded:
		p.Source = "this node's address"
	default:
		p.Source = "the client's address"
	}
	return p
}
