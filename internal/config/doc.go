// Package config reads and checks the configuration.
//
// The format is the KubeProxyConfiguration of upstream's kube-proxy. One table
// lists which flag sets which field, and which fields can change while the proxy
// runs. A configuration comes from a file or from flags: with a file, only the
// flags for logging and for the name of the node still apply, as upstream.
//
// Resolve turns a configuration into Settings, the values for the rest of the
// program, and is the only check there is: it finds all errors at once, each with
// its field and a remedy. What upstream accepts is accepted; a note says where it
// has no effect here. Watch follows the file, and Update computes which of its
// changes apply to a running proxy and which need a restart.
package config
