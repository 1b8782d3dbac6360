// Package fakeapi is an API server of a few hundred lines: it lists and watches
// the objects that kube-proxies follow, in JSON, over plain HTTP.
//
// It checks nothing. So a test can serve what a real API server refuses today and
// accepted once, such as addresses with leading zeros, and it can replace all
// objects in a millisecond. Faults are the failures that clients can meet.
package fakeapi
