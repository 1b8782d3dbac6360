// Package nft speaks to the kernel's nftables by netlink, in the kernel's own
// nouns: tables, chains, rules, sets and elements. It knows nothing about
// Services.
//
// It exists because the shape of a proxy's ruleset, a few maps with very many
// elements, wants three things that general libraries do not offer: messages
// packed full of elements without an allocation for each, one acknowledgement
// for a whole transaction with each refused message told apart, and dumps that
// are streamed.
package nft
