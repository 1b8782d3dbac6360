// Package evidence knows which endpoints answer, from the connections that clients open to
// them: what the kernel's connection tracking shows, and no packet of its own.
//
// An attempt to connect to an endpoint fails in one of two ways. Either nothing comes back:
// the entry stays without a reply while the client tries again. Or a reset comes back: the
// kernel deletes the entry at once, and says so to those who listen. An attempt that is
// answered stays in the table for a while even if the connection ends at once. Only TCP and
// SCTP tell: an unanswered datagram may be all that its sender wants.
//
// Connections that the proxy opens itself, because it relays those of clients, are not seen
// there: it reports how they end.
//
// What is known is kept by endpoint and kind of client, because a firewall may stop some and
// not others. It is as old as the last look at the table, which Summary states: looks take
// at most a hundredth of a core, so that they are the rarer the more connections there are.
package evidence
