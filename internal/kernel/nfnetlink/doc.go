// Package nfnetlink is the common part of the netlink protocols of netfilter, which IPVS
// belongs to: the socket, and parsing messages and attributes without copying them.
package nfnetlink
