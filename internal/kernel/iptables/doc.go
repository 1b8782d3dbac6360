// Package iptables drives the host's iptables: it finds the commands of the
// variant in use (iptables-nft or iptables-legacy), lists and parses tables, feeds
// iptables-restore, detects writes of other programs without listing, and removes
// chains by their names. It knows nothing of Services.
package iptables
