// Package kubernetes is the source that follows Services, EndpointSlices, the
// own Node and ServiceCIDRs of an API server.
//
// Objects are converted to model values the moment they arrive, and are then
// forgotten. Only the values are remembered, which the sink holds anyway. What
// the server sends again, after a restart or an expired watch, is held against
// them, and the sink hears of differences only. Resource versions take no part
// in that: after a restored backup the same one can stand for something else.
// The sink is in sync once every kind was listed.
//
// The server may be away, slow or wrong for as long as it likes. What was known
// stays in force, the source asks again for ever, with growing and jittered
// pauses, and tells once when such an episode begins and when it is over. A watch
// that the server ends is no such episode: it goes on at once from the last version.
//
// Nothing is asked for but lists and watches of these kinds, as the role
// system:node-proxier allows. A server without EndpointSlices is asked for
// Endpoints instead; one that has no ServiceCIDRs, or does not let the proxy list
// them, is asked again from time to time.
package kubernetes
