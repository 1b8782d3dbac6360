package iptables

import (
	"bytes"
	"errors"
	"hash/maphash"
)

// listing is what iptables-save printed of a table.
type listing struct {
	// chains are the prints of all chains, by name.
	chains map[string]print
	// builtin are the rules of the built-in chains, each with the name of its
	// chain in front, as behind -A.
	builtin []string
}

// errCut says that a listing does not end where it should.
var errCut = errors.New("the listing ends in the middle")

// ScanListing reads what iptables-save printed, and tells of the chains and
// rules of one table in their order. A rule is a whole line, from -A to its end.
// Lines of other tables, and those that are something else, are passed over.
func ScanListing(text []byte, table string, chain func(name []byte, builtin bool), rule func(chain, line []byte)) error {
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
			chain(name, len(policy) > 0 && policy[0] != '-') // chains of users have no policy
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

// parseListing reads a listing of one table.
func parseListing(text []byte, table string) (*listing, error) {
	l := &listing{chains: map[string]print{}}
	p := listingParser{listing: l, builtin: map[string]bool{}}
	p.hash.SetSeed(hashSeed)
	if err := ScanListing(text, table, p.chain, p.rule); err != nil {
		return nil, err
	}
	p.end()
	return l, nil
}

type listingParser struct {
	*listing
	builtin map[string]bool
	// name and hash are of the chain whose rules are being read; a chain's rules
	// stand together.
	name  string
	hash  maphash.Hash
	rules int
}

func (p *listingParser) chain(name []byte, builtin bool) {
	p.chains[string(name)] = emptyPrint
	p.builtin[string(name)] = builtin
}

func (p *listingParser) rule(name, line []byte) {
	if p.builtin[string(name)] {
		p.listing.builtin = append(p.listing.builtin, string(line[len("-A "):len(line)-1]))
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
		p.chains[p.name] = print{p.hash.Sum64(), p.rules}
	}
	p.hash.Reset()
	p.rules = 0
}

var emptyPrint = (&page{}).print()
