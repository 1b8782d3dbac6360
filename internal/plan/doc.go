// Package plan decides what every address and port must do. All Kubernetes
// semantics are here, once: the result (Desired) consists of frontends,
// endpoints, verdicts and masquerading, and a dataplane needs no Kubernetes
// term to program it.
//
// Planning is pure and deterministic and depends on the current objects only,
// never on the order in which they arrived. It works Service by Service, so that
// one changed EndpointSlice costs the work of one Service.
package plan
