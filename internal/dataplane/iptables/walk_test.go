//go:build linux

package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"sluice/internal/model"
)

// packet is the part of one that trees match.
type packet struct {
	to       netip.AddrPort
	protocol model.Protocol
}

// walk is the path of a packet through a table. Only matches on the destination are
// true: it meets as many rules as possible, and the last endpoint of a pool.
type walk struct {
	*fakeTable
	packet
	met  int    // rules
	last string // the target at which it ended
}

// enter walks through a chain, and reports whether the path ended there.
func (w *walk) enter(chain string) bool {
	for _, r := range w.chains[chain] {
		w.met++
		if !w.matches(r) {
			continue
		}
		fields := strings.Fields(r)
		how, to := fields[len(fields)-2], target(r)
		switch {
		case to == "RETURN":
			return false
		case strings.HasPrefix(to, "KUBE-"):
			if w.enter(to) {
				return true
			}
			if how == "-g" {
				return false
			}
		case to != "MARK":
			w.last = r
			return true
		}
	}
	return false
}

func (w *walk) matches(r string) bool {
	fields := strings.Fields(r)
	for i, word := range fields {
		switch word {
		case "-s", "-i", "statistic", "--update", "--src-type", "--ctstate":
			return false
		case "-d":
			not := i > 0 && fields[i-1] == "!"
			if netip.MustParsePrefix(fields[i+1]).Contains(w.to.Addr()) == not {
				return false
			}
		case "-p":
			if fields[i+1] != protocolName(w.protocol) {
				return false
			}
		case "--dport":
			from, to, ranged := strings.Cut(fields[i+1], ":")
			if !ranged {
				to = from
			}
			a, _ := strconv.Atoi(from)
			b, _ := strconv.Atoi(to)
			if p := int(w.to.Port()); p < a || p > b {
				return false
			}
		}
	}
	return true
}

// walk follows a packet through a chain of the table.
func (t *fakeTable) walk(chain string, p packet) *walk {
	w := &walk{fakeTable: t, packet: p}
	w.enter(chain)
	return w
}
