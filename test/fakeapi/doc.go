// Package fakeapi is an API server of a few hundred lines: it lists and watches the
// objects that kube-proxies follow, in JSON and Protobuf, over plain HTTP.
//
// It validates nothing, so that a test can serve what a real API server accepted
// once and refuses today, such as addresses with leading zeros, and can replace all
// objects in a millisecond. Faults are the failures that clients can encounter.
package fakeapi
