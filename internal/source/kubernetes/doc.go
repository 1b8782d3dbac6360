// Package kubernetes is the source that follows Services, EndpointSlices, this
// Node and ServiceCIDRs of an API server.
//
// Objects are converted to model values when they arrive, and are then dropped.
// Only the values are kept, which the sink holds anyway. What the server sends
// again, after a restart or an expired watch, is compared with them, and the
// sink only gets differences. Resource versions play no part in that: after a
// restored backup the same one can stand for something else. The sink is in
// sync once every kind was listed.
//
// The server may be unavailable, slow or wrong for any time. What was known
// stays in force, requests are retried forever, with growing and jittered
// pauses, and the beginning and the end of such an outage are logged once. A
// watch that the server ends is not an outage: it is resumed immediately from
// the last version.
//
// Only lists and watches of these kinds are requested, as the role
// system:node-proxier allows. A server without EndpointSlices is asked for
// Endpoints instead; one without ServiceCIDRs, or which does not let the proxy
// list them, is asked again from time to time.
package kubernetes
