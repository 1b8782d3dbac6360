// Package cluster holds the tests that run the real binary against a real API
// server: a node of a lab, where packets decide, whose kube-proxy knows nothing
// but a kubeconfig.
//
// It is in a module of its own, because only here may Kubernetes itself be a
// dependency: package apiserver builds kube-apiserver and etcd from source.
// Package configuration compares what upstream's kube-proxy and ours make of a
// configuration, and command upstream is the former with other questions to answer.
// Package tunnel is the way from the node to the API server, and what can go
// wrong on that way. Package kubelet runs the proxy as the pod that deploy makes
// of it. The comparison with upstream's kube-proxy in random clusters does with an
// API server that checks nothing, sluice/test/fakeapi.
package cluster
