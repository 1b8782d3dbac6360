// Package conntrack deletes stale entries from the kernel's connection tracking
// table: those of UDP, those of TCP that were never answered, and on demand all of TCP.
//
// The rules of a dataplane decide about the first packet of a flow; the table
// remembers the decision for all others. A TCP client notices that its endpoint
// is gone and reconnects, unless it waits for the answer to its first packet: that it
// repeats, to the same endpoint. A UDP client that keeps its socket does not: as long
// as it sends, its packets go to an endpoint that was removed, or nowhere if
// the Service did not exist when it began. So after each commit the entries
// that contradict it are deleted, and the next packet is decided by the current
// rules.
//
// A TCP client of an endpoint that vanished silently waits for long, though. On
// request such connections are reset: their entries are deleted too, and both
// ends are provoked to send a challenge ACK, which is answered by a reset.
//
// Guarantees:
//
//   - An entry is deleted if its client sent to a programmed frontend and is
//     answered by an endpoint that does not serve it, or if it was translated by a
//     frontend that is gone. Entries to endpoints that still serve are kept, even
//     if new flows go elsewhere, and so are those that are not addressed to a
//     frontend by address, port and protocol.
//   - A TCP connection is reset only if its endpoint no longer serves a programmed
//     frontend, and only where the rules answer the client with a reset, and do not
//     drop its packets.
//   - A pass over the table takes constant memory, regardless of its size.
//   - The first pass after a quiet time starts immediately; under constant change
//     passes take at most a tenth of one core.
//   - A pass that failed is retried with a backoff.
//   - Committed never blocks.
package conntrack
