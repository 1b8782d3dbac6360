// Package nfnetlink is what all conversations with the kernel's netfilter have
// in common: the socket, and walking over messages and attributes without
// copying them. What the attributes mean is up to its users.
package nfnetlink
