//go:build linux

package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/test/lab"
)

// flows are the attempts that one line speaks of.
type flows struct {
	from      []string
	to        []target
	protocols []lab.Protocol
	families  []string // "v4" and "v6"
}

// target is where a line's packets go: a name or an address, and a port.
type target struct {
	name string
	port uint16
}

func (t target) String() string { return fmt.Sprintf("%s:%d", t.name, t.port) }

var allFamilies = []string{"v4", "v6"}

// parseFlows reads "FROM -> TO [PROTOCOLS] [FAMILIES]" and returns the words
// that follow.
func (p *parser) parseFlows(text string, protocols ...lab.Protocol) (flows, []string, error) {
	words := strings.Fields(text)
	if len(words) < 3 || words[1] != "->" {
		return flows{}, nil, errors.New("want FROM -> TO")
	}
	f := flows{from: splitList(words[0]), protocols: protocols, families: allFamilies}
	for _, name := range f.from {
		if !knownHost(name) {
			return flows{}, nil, fmt.Errorf("the lab has no host %q", name)
		}
	}
	for _, text := range splitList(words[2]) {
		t, err := p.parseTarget(text)
		if err != nil {
			return flows{}, nil, err
		}
		f.to = append(f.to, t)
	}
	rest := words[3:]
	for len(rest) > 0 && f.narrow(splitList(rest[0])) {
		rest = rest[1:]
	}
	return f, rest, nil
}

// parseTarget reads NAME:PORT or ADDRESS:PORT.
func (p *parser) parseTarget(text string) (target, error) {
	i := strings.LastIndex(text, ":")
	if i < 0 {
		return target{}, fmt.Errorf("%q has no port", text)
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil {
		return target{}, fmt.Errorf("port of %q: %w", text, err)
	}
	t := target{name: strings.Trim(text[:i], "[]"), port: uint16(port)}
	if _, err := netip.ParseAddr(t.name); err != nil && !p.names[t.name] && !knownHost(strings.TrimSuffix(t.name, spareSuffix)) {
		return target{}, fmt.Errorf("there is no name %q: use let", t.name)
	}
	return t, nil
}

// narrow takes a word that lists protocols or families.
func (f *flows) narrow(words []string) bool {
	var protocols []lab.Protocol
	var families []string
	for _, word := range words {
		switch {
		case slices.Contains([]lab.Protocol{lab.TCP, lab.UDP, lab.SCTP}, lab.Protocol(word)):
			protocols = append(protocols, lab.Protocol(word))
		case slices.Contains(allFamilies, word):
			families = append(families, word)
		default:
			return false
		}
	}
	if len(protocols) > 0 {
		f.protocols = protocols
	}
	if len(families) > 0 {
		f.families = families
	}
	return true
}

// spareSuffix marks the further addresses of a host.
const spareSuffix = "-spare"

func knownHost(name string) bool { return slices.Contains(lab.HostNames(), name) }

// resolve finds the addresses of a target.
func (r *runner) resolve(t target) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(t.name); err == nil {
		return []netip.Addr{a}, nil
	}
	if pair, ok := r.names[t.name]; ok {
		return pair[:], nil
	}
	if name, ok := strings.CutSuffix(t.name, spareSuffix); ok {
		h, err := r.lab.Host(name)
		if err != nil {
			return nil, err
		}
		return h.Spare, nil
	}
	h, err := r.lab.Host(t.name)
	if err != nil {
		return nil, err
	}
	return h.Addrs[:], nil
}

// expand lists the single flows of a line.
func (r *runner) expand(f flows) ([]lab.Flow, error) {
	var out []lab.Flow
	for _, t := range f.to {
		addrs, err := r.resolve(t)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if !slices.Contains(f.families, familyOf(a)) {
				continue
			}
			for _, from := range f.from {
				for _, protocol := range f.protocols {
					out = append(out, lab.Flow{From: from, Protocol: protocol, To: netip.AddrPortFrom(a, t.port)})
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no address of the wanted families")
	}
	return r.sample(out), nil
}

// sample returns some of the flows: those of the same clients at every line of a
// script, for with session affinity a client's endpoint follows from what it did
// at the lines before.
func (r *runner) sample(all []lab.Flow) []lab.Flow {
	if r.Sample < 2 {
		return all
	}
	rank := func(f lab.Flow) uint64 {
		hash := fnv.New64()
		fmt.Fprint(hash, r.script, f.From, f.Protocol, familyOf(f.To.Addr()))
		return hash.Sum64()
	}
	slices.SortStableFunc(all, func(a, b lab.Flow) int { return cmp.Compare(rank(a), rank(b)) })
	return all[:(len(all)+r.Sample-1)/r.Sample]
}

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "v4"
	}
	return "v6"
}
