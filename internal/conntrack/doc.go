// Package conntrack removes the entries of the kernel's connection tracking
// table that lead clients astray: those of UDP, and on demand those of TCP.
//
// The rules of a dataplane decide about the first packet of a flow; the table
// remembers the decision for all that follow. A TCP client notices that its
// endpoint is gone and connects anew. A UDP client that keeps its socket does
// not: as long as it sends, it is led to an endpoint that left, or nowhere, if
// the Service was not there when it began. So after each commit the entries
// that no longer agree with it are removed, and the next packet is decided by
// the rules of now.
//
// A TCP client of an endpoint that is gone without a word waits for long, though.
// Whoever prefers that it connects anew has such connections reset: their entries
// are removed too, and both ends are made to speak, so that they learn of it.
//
// What it promises:
//
//   - An entry goes if its client sent to a frontend that is programmed and is
//     answered by somebody who does not serve it, or if it was translated by a
//     frontend that is gone. Entries to endpoints that still serve stay, also if
//     new flows go elsewhere, and so does whatever is not addressed to a frontend
//     by address, port and protocol.
//   - A TCP connection is cut only if its endpoint does not serve a programmed
//     frontend any more, and only where the rules answer the client with a reset,
//     and not with silence.
//   - A pass over the table takes constant memory, however large the table is.
//   - The first pass after a quiet time starts at once; under constant change
//     passes take a tenth of one core at most.
//   - A pass that failed is made up for, with a back-off.
//   - Nobody waits: Committed only takes notes.
package conntrack
