// Package nfnetlink is the conversation with the kernel over netlink, for netfilter, IPVS and
// routing: requests, dumps and batches, notifications, and parsing messages and attributes
// without copying them.
package nfnetlink
