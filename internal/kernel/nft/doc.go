// Package nft programs nftables by netlink: tables, chains, rules, sets and elements.
// It knows nothing about Services.
//
// A proxy's ruleset is a few maps with very many elements. General libraries lack what
// that needs: messages packed with elements without an allocation for each, one
// acknowledgement for a whole transaction with a reason for each refused message,
// streamed dumps, and lookups of many keys.
package nft
