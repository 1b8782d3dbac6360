// Package cluster has the tests that run the real binary against a real API server:
// on a node of a lab, with real packets, and with nothing but a kubeconfig.
//
// It is a separate module, because only here Kubernetes itself may be a dependency:
// package apiserver builds kube-apiserver and etcd from source. Package
// configuration compares what upstream's kube-proxy and ours make of a
// configuration, with command upstream, which runs upstream's code. Package tunnel
// connects the node to the API server, and injects network faults. Package kubelet
// runs the proxy as the pod of deploy. The comparison with upstream's kube-proxy in
// random clusters uses an API server that validates nothing, sluice/test/fakeapi.
package cluster
