// Package config is how an administrator tells the proxy what to do.
//
// There is one truth, the KubeProxyConfiguration that upstream's kube-proxy
// reads, with one table that says which flag sets which of its fields.
// Resolve turns it into the values that the rest of the program works with,
// and is the only check there is: it finds everything that is wrong at once,
// and says of each thing where it is and what to do about it.
package config
