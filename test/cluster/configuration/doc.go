// Package configuration compares what our kube-proxy and upstream's make of
// configuration files, command lines and feature gates: whether they are accepted,
// and what is then in force. Upstream's behaviour is not written down here:
// upstream is run. Intended differences are listed with their reason, and each of
// them must still exist.
package configuration
