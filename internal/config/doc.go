// Package config is how an administrator tells the proxy what to do.
//
// There is one truth, the KubeProxyConfiguration that upstream's kube-proxy
// reads, and one table that says which flag sets which of its fields, and
// which of them can change while the proxy runs. A configuration comes from a
// file or from flags: with a file, only the flags for logging and for the name
// of the node count beside it, as upstream has it.
//
// Resolve turns a configuration into the values that the rest of the program
// works with, and is the only check there is: it finds everything that is
// wrong at once, and says of each thing where it is and what to do about it.
// What upstream accepts is accepted; where it has no effect here, a note says
// so. Watch follows the file, and Update says what of a change can be put into force
// in a running proxy and what has to wait.
package config
