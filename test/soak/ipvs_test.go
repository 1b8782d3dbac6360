//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// virtual is a virtual service of the node, as ipvsadm -Sn prints it.
type virtual struct {
	at           string   // "-t 10.96.0.1:80"
	options      string   // "-s rr"
	destinations []string // "10.244.1.1:8080 -m -w 1"
}

// listVirtual lists the virtual services.
func (n *node) listVirtual(ctx context.Context) ([]virtual, error) {
	text, err := n.run(ctx, "", "ipvsadm", "-Sn")
	return parseVirtual(text), err
}

func parseVirtual(text string) []virtual {
	var all []virtual
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at, rest := strings.Join(fields[1:3], " "), fields[3:]
		switch {
		case fields[0] == "-A":
			all = append(all, virtual{at: at, options: strings.Join(rest, " ")})
		case len(all) > 0 && rest[0] == "-r":
			v := &all[len(all)-1]
			v.destinations = append(v.destinations, strings.Join(rest[1:], " "))
		}
	}
	return all
}

// drains reports whether a destination only keeps its connections.
func drains(destination string) bool { return strings.HasSuffix(destination, " -w 0") }

// live reports whether a virtual service has destinations for new connections. Others
// are there for as long as connections need them.
func (v virtual) live() bool {
	return slices.ContainsFunc(v.destinations, func(d string) bool { return !drains(d) })
}

// ip returns the address of a virtual service.
func (v virtual) ip() string {
	_, at, _ := strings.Cut(v.at, " ")
	host, _, _ := strings.Cut(strings.TrimPrefix(at, "["), "]")
	if !strings.HasPrefix(at, "[") {
		host, _, _ = strings.Cut(at, ":")
	}
	return host
}

// virtualLines returns what gets new connections in a canonical form.
func virtualLines(all []virtual) []string {
	var lines []string
	for _, v := range all {
		if !v.live() {
			continue
		}
		lines = append(lines, "-A "+v.at+" "+v.options)
		for _, d := range v.destinations {
			if !drains(d) {
				lines = append(lines, "-a "+v.at+" -r "+d)
			}
		}
	}
	return lines
}

// routing is what leads packets to IPVS, as commands that would delete it.
type routing struct{ rules, routes []string }

// routeTable has the routes to virtual services.
const routeTable = "51007"

var ipFamilies = []string{"-4", "-6"}

// listRouting lists the rules and routes of ipvs mode.
func (n *node) listRouting(ctx context.Context) (r routing, err error) {
	for _, family := range ipFamilies {
		text, err := n.run(ctx, "", "ip", family, "rule", "show")
		if err != nil {
			return r, err
		}
		for line := range strings.Lines(text) {
			if priority, rest, _ := strings.Cut(strings.TrimSpace(line), ":"); strings.HasSuffix(rest, " proto 81") {
				r.rules = append(r.rules, family+" rule del priority "+priority+" "+strings.Join(strings.Fields(rest), " "))
			}
		}
		// There is no table before the first route.
		if text, err = n.run(ctx, "", "sh", "-c", "ip "+family+" route show table "+routeTable+" 2>/dev/null || true"); err != nil {
			return r, err
		}
		for line := range strings.Lines(text) {
			r.routes = append(r.routes, family+" route del table "+routeTable+" "+strings.Join(strings.Fields(line), " "))
		}
	}
	return r, nil
}

// lines returns the rules, and the routes but those to virtual services that only drain.
func (r routing) lines(all []virtual) []string {
	lines := slices.Clone(r.rules)
	for _, route := range r.routes {
		reason := func(live bool) bool {
			return slices.ContainsFunc(all, func(v virtual) bool {
				return v.live() == live && strings.Contains(route, " "+v.ip()+" ")
			})
		}
		if reason(true) || !reason(false) {
			lines = append(lines, route)
		}
	}
	return lines
}

// ipvsRules returns what ipvs mode has in the kernel besides its table.
func (n *node) ipvsRules(ctx context.Context) ([]string, error) {
	all, err := n.listVirtual(ctx)
	if err != nil {
		return nil, err
	}
	r, err := n.listRouting(ctx)
	return append(virtualLines(all), r.lines(all)...), err
}

// ipvsAct tampers with virtual services, rules or routes.
func (s *soak) ipvsAct() (act, error) {
	all, err := s.listVirtual(s.ctx)
	if err != nil {
		return act{}, err
	}
	r, err := s.listRouting(s.ctx)
	if err != nil {
		return act{}, err
	}
	return ipvsActs[s.rng.IntN(len(ipvsActs))](s.rng, all, r), nil
}

// ipvsActs is tampering. It is empty if there is nothing to tamper with.
var ipvsActs = []func(*rand.Rand, []virtual, routing) act{
	func(_ *rand.Rand, all []virtual, _ routing) act {
		if len(all) == 0 {
			return act{}
		}
		return ipvsadm("IPVS cleared", "-C")
	},
	onVirtual(func(v virtual, _ *rand.Rand) act { return ipvsadm("virtual service deleted", "-D "+v.at) }),
	onVirtual(func(v virtual, _ *rand.Rand) act {
		return ipvsadm("other scheduler", "-E "+v.at+" -s wlc")
	}),
	onDestination(func(v virtual, to string, _ *rand.Rand) act {
		return ipvsadm("destination deleted", "-d "+v.at+" -r "+to)
	}),
	onDestination(func(v virtual, to string, rng *rand.Rand) act {
		return ipvsadm("other weight", fmt.Sprintf("-e %s -r %s -m -w %d", v.at, to, []int{0, 7}[rng.IntN(2)]))
	}),
	onVirtual(func(v virtual, rng *rand.Rand) act {
		to := fmt.Sprintf("10.9.9.%d:99", 1+rng.IntN(200))
		if strings.Contains(v.at, "[") {
			to = fmt.Sprintf("[fd00:9::%d]:99", 1+rng.IntN(200))
		}
		return ipvsadm("destination added", "-a "+v.at+" -r "+to+" -m -w 3")
	}),
	onRouting("routing rule deleted", func(r routing) []string { return r.rules }),
	onRouting("route deleted", func(r routing) []string { return r.routes }),
	func(rng *rand.Rand, _ []virtual, r routing) act {
		if len(r.routes) == 0 {
			return act{}
		}
		return ipCommand("routes flushed", ipFamilies[rng.IntN(2)]+" route flush table "+routeTable)
	},
}

func ipvsadm(what, args string) act {
	return act{what: what, command: append([]string{"ipvsadm"}, strings.Fields(args)...)}
}

func ipCommand(what, args string) act {
	return act{what: what, command: append([]string{"ip"}, strings.Fields(args)...)}
}

func onVirtual(do func(virtual, *rand.Rand) act) func(*rand.Rand, []virtual, routing) act {
	return func(rng *rand.Rand, all []virtual, _ routing) act {
		all = slices.DeleteFunc(slices.Clone(all), func(v virtual) bool { return !v.live() })
		if len(all) == 0 {
			return act{}
		}
		return do(all[rng.IntN(len(all))], rng)
	}
}

func onDestination(do func(v virtual, to string, rng *rand.Rand) act) func(*rand.Rand, []virtual, routing) act {
	return onVirtual(func(v virtual, rng *rand.Rand) act {
		live := slices.DeleteFunc(slices.Clone(v.destinations), drains)
		return do(v, strings.Fields(live[rng.IntN(len(live))])[0], rng)
	})
}

func onRouting(what string, of func(routing) []string) func(*rand.Rand, []virtual, routing) act {
	return func(rng *rand.Rand, _ []virtual, r routing) act {
		lines := of(r)
		if len(lines) == 0 {
			return act{}
		}
		return ipCommand(what, lines[rng.IntN(len(lines))])
	}
}
