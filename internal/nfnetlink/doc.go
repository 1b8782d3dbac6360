// Package nfnetlink is the common part of netlink protocols of netfilter: the socket,
// and parsing messages and attributes without copying them.
package nfnetlink
