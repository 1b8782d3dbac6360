// Package verdict says whether clients of a Service get an answer, and whether the proxy
// does its job: one word for each, which everything that a person or program reads repeats.
//
// The word is about the client's packet. It follows from what plan decides about it, from
// whether the kernel has it, from what is wrong with the node, and from what traffic shows:
// a Service works if nothing is known against it. What was programmed is a detail.
package verdict
