//go:build linux

// Command demo demonstrates the proxy: it builds a lab, runs the real binary there
// on a copy of the example manifests, sends traffic, changes a manifest, and prints
// the results. It asserts little and cleans up after itself; the tests are
// elsewhere.
package main
