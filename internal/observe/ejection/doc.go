// Package ejection finds endpoints that do not answer, and reports them to the engine: a Service that
// asks for it gives them no new connections for a while.
//
// The dataplane notices connections of clients that are not answered (dataplane.Witness). An endpoint
// that answered nobody since two clients began to wait, or three connections of one, is suspected, and this
// node connects to it: an answer acquits. Otherwise it is left out, for 5 seconds at first and for twice as
// long each time. Then this node connects to it again: an answer ends the ejection. A reset extends it, once;
// after the second, and after silence, which may be due to a policy about the node, clients get there again
// until one of them has failed. In plan an ejection counts less than what the API says: an endpoint that is
// gone is gone, and of a pool at most half is left out.
package ejection
