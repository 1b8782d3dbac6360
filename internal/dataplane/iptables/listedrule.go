package iptables

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/dataplane"
)

// listedRule is a listed rule, as far as it says which packets it matches and where
// they go.
type listedRule struct {
	destination netip.Prefix // invalid for all
	protocol    string       // "" for all
	port, last  uint16       // 0 and 65535 for all
	// conditional says that it matches certain senders only.
	conditional bool
	// recalls says that it matches remembered clients.
	recalls bool
	target  string
	leaves  bool           // the target does not return
	to      netip.AddrPort // of DNAT
}

// parseRule parses a line of a listing. Unknown options are ignored.
func parseRule(line string) listedRule {
	r := listedRule{last: 65535}
	words := splitRule(line)
	for i := 0; i+1 < len(words); i++ {
		value := words[i+1]
		if words[i] == "!" {
			i++ // none of our negated matches is about the destination
			continue
		}
		switch words[i] {
		case "-d":
			r.destination, _ = netip.ParsePrefix(value)
		case "-p":
			r.protocol = value
		case "--dport":
			r.port, r.last = parsePorts(value)
		case "-s", "-i", "--src-type":
			r.conditional = true
		case "-j", "-g":
			r.target, r.leaves = value, words[i] == "-g"
		case "--to-destination":
			r.to, _ = netip.ParseAddrPort(value)
		case "-m":
			r.recalls = r.recalls || value == "recent" && slices.Contains(words[i:min(i+3, len(words))], "--update")
		default:
			continue
		}
		i++
	}
	return r
}

// splitRule splits a line into words. A quoted string is one.
func splitRule(line string) []string {
	var words []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 0 {
			words = append(words, strings.Fields(part)...)
		} else {
			words = append(words, part)
		}
	}
	return words
}

// parsePorts parses a port or a range of ports.
func parsePorts(s string) (from, to uint16) {
	first, last, ranged := strings.Cut(s, ":")
	if !ranged {
		last = first
	}
	a, _ := strconv.ParseUint(first, 10, 16)
	b, _ := strconv.ParseUint(last, 10, 16)
	return uint16(a), uint16(b)
}

// matches reports whether packets to a place may match the rule.
func (r *listedRule) matches(at dataplane.Destination) bool {
	return (!r.destination.IsValid() || r.destination.Contains(at.IP)) &&
		(r.protocol == "" || r.protocol == protocolName(at.Protocol)) &&
		r.port <= at.Port && at.Port <= r.last
}

// names reports whether the rule is for the place and no other: a node port is at all
// addresses that lead there.
func (r *listedRule) names(at dataplane.Destination) bool {
	return r.port == at.Port && r.last == at.Port && r.destination.IsValid() != at.NodePort()
}

// isDispatch reports whether packets look for their frontend in a chain.
func isDispatch(chain string) bool {
	return slices.Contains([]string{nodePortIPsChain, nodePortsChain, refusedPortsChain}, chain) ||
		slices.ContainsFunc(treePrefixes, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// servesOne reports whether a chain belongs to one service port.
func servesOne(chain string) bool {
	return isPool(chain) || isAdmission(chain) || strings.HasPrefix(chain, routePrefix) || strings.HasPrefix(chain, firewallPortPrefix)
}

func isPool(chain string) bool      { return strings.HasPrefix(chain, poolPrefix) }
func isAdmission(chain string) bool { return strings.HasPrefix(chain, admitPrefix) }
