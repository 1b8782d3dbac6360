// Package configuration holds what our kube-proxy makes of configuration files,
// command lines and feature gates against what upstream's makes of them: whether they
// are accepted, and what is then in force. What upstream does is not written down
// here, upstream is asked. Differences that stay are in a list, with their reason, and
// each of them must be one still.
package configuration
