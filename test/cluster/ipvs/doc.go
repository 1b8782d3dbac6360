// Package ipvs has the tests with upstream's kube-proxy in ipvs mode. They run in
// guests of package vm, because few machines have IPVS: TestGuests builds the tests
// with the tag guest and boots them, with upstream's kube-proxy and ours.
//
// In a guest there is a lab, and on its node1 an API server of package fakeapi. The
// tests migrate node1 between kube-proxies and their modes, under traffic.
package ipvs
