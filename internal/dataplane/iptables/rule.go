//go:build linux

package iptables

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// rule is a rule of iptables. It is written exactly as iptables-save prints it, so
// that listings can be compared by their text.
type rule struct {
	notSource   bool
	source      netip.Prefix
	notDest     bool
	destination netip.Prefix
	notIn       bool
	in          string // an interface, or a prefix of its name and a +
	protocol    string
	comment     string
	port, last  uint16 // destination ports; port 0 and last 0 for all
	match       string // other matches, each with a blank in front
	target      string // with -j or -g
}

func (r *rule) appendTo(b []byte) []byte {
	b = appendPrefix(b, " -s ", r.source, r.notSource)
	b = appendPrefix(b, " -d ", r.destination, r.notDest)
	if r.in != "" {
		if r.notIn {
			b = append(b, " !"...)
		}
		b = append(append(b, " -i "...), r.in...)
	}
	if r.protocol != "" {
		b = append(append(b, " -p "...), r.protocol...)
	}
	if r.comment != "" {
		b = append(append(append(b, ` -m comment --comment "`...), plain(r.comment)...), '"')
	}
	if r.port != 0 || r.last != 0 {
		b = append(append(append(b, " -m "...), r.protocol...), " --dport "...)
		b = strconv.AppendUint(b, uint64(r.port), 10)
		if r.last != r.port {
			b = strconv.AppendUint(append(b, ':'), uint64(r.last), 10)
		}
	}
	b = append(b, r.match...)
	return append(append(b, ' '), r.target...)
}

// plain is a comment without characters that could end it. Names in Kubernetes have
// none, but a name that gets past validation must not inject rules.
func plain(comment string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '?'
		}
		return c
	}, comment)
}

// appendPrefix writes an address match, nothing for all addresses.
func appendPrefix(b []byte, option string, p netip.Prefix, not bool) []byte {
	if !p.IsValid() || p.Bits() == 0 && !not {
		return b
	}
	if not {
		b = append(b, " !"...)
	}
	return p.AppendTo(append(b, option...))
}

func jump(chain string) string { return "-j " + chain }

// leave goes to a chain that does not return: the rest of the present one does not
// concern the packet.
func leave(chain string) string { return "-g " + chain }

// jumpTarget is the chain of ours that the rule jumps or goes to, if any.
func (r *rule) jumpTarget() (chain string, any bool) {
	const option = len("-j ")
	if len(r.target) <= option || !strings.HasPrefix(r.target[option:], ourPrefix) {
		return "", false
	}
	return r.target[option:], true
}

func dnat(to netip.AddrPort) string {
	var room [64]byte // pools have very many
	return string(to.AppendTo(append(room[:0], "-j DNAT --to-destination "...)))
}

// chance matches that share of packets, nothing for all of them. The kernel has
// probabilities as multiples of 2^-31, and iptables-save prints those.
func chance(part, of int) string {
	switch {
	case part >= of:
		return ""
	case part == 1 && of < len(oneOf):
		return oneOf[of]
	}
	return probability(part, of)
}

// oneOf are the chances of one among so many, for endpoints without weights, of which there are very many.
var oneOf = func() (out [poolRules + 1]string) {
	for of := 2; of < len(out); of++ {
		out[of] = probability(1, of)
	}
	return out
}()

func probability(part, of int) string {
	const unit = 1 << 31
	p := math.Round(unit*float64(part)/float64(of)) / unit
	return " -m statistic --mode random --probability " + strconv.FormatFloat(p, 'f', 11, 64)
}

const (
	fromNode = " -m addrtype --src-type LOCAL"
	toNode   = " -m addrtype --dst-type LOCAL"
)
