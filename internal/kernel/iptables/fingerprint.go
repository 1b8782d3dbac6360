package iptables

import "hash/maphash"

// Fingerprint identifies the rules of a chain by a hash of their text.
type Fingerprint struct {
	Hash  uint64
	Rules int
}

// hashSeed is random: fingerprints are compared within this process only.
var hashSeed = maphash.MakeSeed()

var emptyFingerprint = (&Chain{}).Fingerprint()
