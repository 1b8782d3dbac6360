// Package hns speaks with the Host Networking Service of Windows: networks, endpoints and load
// balancers, which are JSON documents. It knows the functions that computenetwork.dll and
// vmcompute.dll export, how their handles are opened and closed, and what their errors mean.
//
// The documents and the client are the same on all systems. Only Windows has the service, which
// is an ABI; elsewhere tests put another one in its place.
package hns
