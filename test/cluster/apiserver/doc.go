// Package apiserver runs a real etcd and a real kube-apiserver as a component
// of tests: real validation, real allocation of addresses, real watches.
//
// Both are built from the modules that go.mod names, once per version, into a
// directory in the user's cache (Binaries). A Server is one pair of them on free
// loopback ports with certificates of its own. Its API server can be stopped,
// killed and started again on the same port with the same data, and its etcd
// compacted, as happens to clusters in real life. A Pool hands servers that nothing of the kind
// has happened to from one test to the next.
//
// A Server leaves nothing behind: its data is in a temporary directory that Close
// removes, and its processes die with the test, however that ends.
package apiserver
