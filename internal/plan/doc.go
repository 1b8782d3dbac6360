// Package plan decides what every address and port must do. All Kubernetes
// semantics live here, once: what comes out (Desired) speaks of frontends,
// endpoints, verdicts and masquerading, and a dataplane needs no Kubernetes
// word to carry it out.
//
// Planning is pure and deterministic and depends on the current objects only,
// never on the order in which they came. It works service by service, so that
// one changed EndpointSlice costs the work of one Service.
package plan
