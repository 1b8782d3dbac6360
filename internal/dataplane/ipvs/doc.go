// Package ipvs programs what plan desires into IPVS, behind an nftables table.
//
// The table is that of nftables mode. It decides on everything: which clients may
// connect, what is refused, who is masqueraded. Only the last step differs: where plan
// delegates the choice of an endpoint (plan.Route.Delegated), packets are not translated but
// left to a virtual service of IPVS, whose scheduler chooses. See docs/ipvs.md.
//
// The order in which a change is written is such that no packet meets a virtual service
// without the table's decisions, or the table without a virtual service: see Apply.
package ipvs
