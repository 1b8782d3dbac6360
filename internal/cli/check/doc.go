// Package check finds out, before a node is switched to this proxy, what would not
// work or would be different: on the node, in the configuration and in the Services.
//
// It only reads. Whether the kernel takes the rules is tried in a network namespace of
// its own, and only if that loads no kernel modules, unless that is allowed.
package check
