//go:build linux

package iptables

import (
	"bytes"
	"errors"
	"hash/maphash"
)

// Listing is the parsed output of iptables-save for a table.
type Listing struct {
	// Chains are the fingerprints of all chains, by name.
	Chains map[string]Fingerprint
	// Builtin are the rules of the built-in chains, without their -A.
	Builtin []string
}

// errCut says that a listing is incomplete.
var errCut = errors.New("the listing ends in the middle")

// scanListing parses the output of iptables-save, and calls chain and rule for those
// of one table in their order. A rule is a whole line, from -A to its newline. Other
// lines are skipped.
func scanListing(text []byte, table string, chain func(name []byte, builtin bool), rule func(chain, line []byte)) error {
	inside := false
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			return errCut
		}
		switch {
		case line[0] == '*':
			inside = string(line[1:len(line)-1]) == table
		case !inside:
		case line[0] == ':':
			name, policy, _ := bytes.Cut(line[1:len(line)-1], []byte(" "))
			chain(name, len(policy) > 0 && policy[0] != '-') // user-defined chains have no policy
		case bytes.HasPrefix(line, []byte("-A ")):
			name, _, _ := bytes.Cut(line[len("-A "):len(line)-1], []byte(" "))
			rule(name, line)
		case string(line) == "COMMIT\n":
			inside = false
		}
	}
	if inside {
		return errCut
	}
	return nil
}

// ParseListing parses the output of iptables-save for one table.
func ParseListing(text []byte, table string) (*Listing, error) {
	l := &Listing{Chains: map[string]Fingerprint{}}
	p := listingParser{Listing: l, builtin: map[string]bool{}}
	p.hash.SetSeed(hashSeed)
	if err := scanListing(text, table, p.chain, p.rule); err != nil {
		return nil, err
	}
	p.end()
	return l, nil
}

type listingParser struct {
	*Listing
	builtin map[string]bool
	// name, hash and rules are of the chain being parsed; a chain's rules are
	// consecutive.
	name  string
	hash  maphash.Hash
	rules int
}

func (p *listingParser) chain(name []byte, builtin bool) {
	p.Chains[string(name)] = emptyFingerprint
	p.builtin[string(name)] = builtin
}

func (p *listingParser) rule(name, line []byte) {
	if p.builtin[string(name)] {
		p.Builtin = append(p.Builtin, string(line[len("-A "):len(line)-1]))
	}
	if string(name) != p.name {
		p.end()
		p.name = string(name)
	}
	p.hash.Write(line)
	p.rules++
}

func (p *listingParser) end() {
	if p.rules > 0 {
		p.Chains[p.name] = Fingerprint{p.hash.Sum64(), p.rules}
	}
	p.hash.Reset()
	p.rules = 0
}

// Fingerprint identifies the rules of a chain by a hash of their text.
type Fingerprint struct {
	Hash  uint64
	Rules int
}

// hashSeed is random: fingerprints are compared within this process only.
var hashSeed = maphash.MakeSeed()

var emptyFingerprint = (&Chain{}).Fingerprint()
