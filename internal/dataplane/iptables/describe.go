//go:build linux

package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/netns"
	"sluice/internal/plan"
)

// Describe follows the paths of packets to a frontend, and reads the chains on them.
func (d *Dataplane) Describe(ctx context.Context, at dataplane.Destination, client netip.Addr) (dataplane.Description, error) {
	var drv driver
	var states []*familyState
	d.locked(func() { drv, states = d.driver, d.states })
	if states == nil {
		return dataplane.Description{}, dataplane.ErrReconciling
	}
	i := slices.IndexFunc(states, func(s *familyState) bool { return s.family == at.Family() })
	if i < 0 {
		return dataplane.Description{}, nil // no rules of the family
	}
	e := explorer{ctx: ctx, driver: drv, at: at, visited: map[visit]bool{}}
	e.explore(iptables.Table{Family: at.Family(), Name: nat}, servicesChain)
	e.explore(iptables.Table{Family: at.Family(), Name: filter}, servicesChain, externalServicesChain, firewallChain)
	if e.err != nil {
		return dataplane.Description{}, e.err
	}
	f := states[i].frontend(at.Key)
	out := e.description(f)
	if f == nil || f.Affinity == 0 || !client.IsValid() {
		return out, nil
	}
	err := netns.Do(d.netns, func() error { return recallClient(ctx, &out, f, client) })
	return out, err
}

// recallClient finds the endpoints that the kernel remembers for a client, in the order
// of the rules that recall them.
func recallClient(ctx context.Context, out *dataplane.Description, f *plan.Frontend, client netip.Addr) error {
	pool := f.Route.Endpoints
	if f.Outside != nil {
		pool = slices.Concat(pool, f.Outside.Endpoints)
	}
	for _, e := range pool {
		if err := ctx.Err(); err != nil {
			return err
		}
		list := idOf(f).clients(e.AddrPort)
		line, left, err := remembered(list, client, f.Affinity)
		if err != nil {
			return err
		}
		if left > 0 {
			out.Remembered = append(out.Remembered, dataplane.Remembered{Endpoint: e.AddrPort, Expires: left})
			out.Objects = append(out.Objects, dataplane.Object{Where: "recent " + list, What: line})
		}
	}
	return nil
}

// explorer follows all paths that packets to a place may take, from any sender. Of a
// pool with very many endpoints it reads a part.
type explorer struct {
	ctx    context.Context
	driver driver
	at     dataplane.Destination

	objects []dataplane.Object
	visited map[visit]bool // and whether there was anything for the frontend
	// inside are the endpoints behind rules with a condition on the sender, others
	// those behind all others. divided says that there are both.
	inside, others foundEndpoints
	divided        bool
	err            error
}

// visit is a chain on the path of packets from pods and the node, or from others.
type visit struct {
	table  iptables.Table
	chain  string
	inside bool
}

// foundEndpoints are in the order of the kernel.
type foundEndpoints struct {
	list []netip.AddrPort
	seen map[netip.AddrPort]bool
	// part says that chains with more of them were not read.
	part bool
}

func (f *foundEndpoints) full() bool { return len(f.seen) >= dataplane.MaxDescribed }

func (f *foundEndpoints) add(e netip.AddrPort) {
	if f.seen == nil {
		f.seen = map[netip.AddrPort]bool{}
	}
	if !f.seen[e] && !f.full() {
		f.list = append(f.list, e)
	}
	f.seen[e] = true
}

// size is how many endpoints there are. Those that were not read are assumed to be
// as planned.
func (f *foundEndpoints) size(planned *plan.Route) int {
	if f.part && planned != nil {
		return len(planned.Endpoints)
	}
	return len(f.seen)
}

// description returns the result. The frontend is nil if there should be none.
func (e *explorer) description(f *plan.Frontend) dataplane.Description {
	route, outside := &e.others, &foundEndpoints{}
	if e.divided {
		route, outside = &e.inside, &e.others
	}
	var planned, plannedOutside *plan.Route
	if f != nil {
		planned, plannedOutside = &f.Route, f.Outside
	}
	return dataplane.Description{
		Present: len(e.objects) > 0,
		Objects: e.objects,
		Route:   route.list, RouteSize: route.size(planned),
		Outside: outside.list, OutsideSize: outside.size(plannedOutside),
	}
}

func (e *explorer) explore(t iptables.Table, chains ...string) {
	for _, chain := range chains {
		e.enter(t, chain, false)
	}
}

// enter follows a chain, once, and reports whether there is anything for the frontend.
func (e *explorer) enter(t iptables.Table, chain string, inside bool) bool {
	v := visit{t, chain, inside}
	any, again := e.visited[v]
	if !again && e.err == nil {
		any = e.read(v)
		e.visited[v] = any
	}
	return any
}

// read reads a chain and follows its rules. Those that lead to something for the
// frontend are recorded.
func (e *explorer) read(v visit) (any bool) {
	lines, err := e.driver.Rules(e.ctx, v.table, v.chain)
	if err != nil {
		e.err = err
		return false
	}
	for _, line := range lines {
		r := parseRule(line)
		if !r.matches(e.at) {
			continue
		}
		before := len(e.objects)
		e.objects = append(e.objects, dataplane.Object{Where: v.table.String(), What: line})
		if e.follow(v, &r) {
			any = true
		} else {
			e.objects = e.objects[:before]
		}
	}
	return any
}

// follow follows a rule, and reports whether it concerns the frontend.
func (e *explorer) follow(v visit, r *listedRule) bool {
	switch {
	case r.target == nodePortIPsChain && !e.at.NodePort():
		return false
	case isDispatch(r.target):
		return e.enter(v.table, r.target, v.inside)
	case !servesOne(v.chain) && !r.names(e.at):
		return false // for all frontends
	case r.target == markChain || r.target == markOffClusterChain:
		return true
	}
	inside := v.inside
	if v.table.Name == nat && !isAdmission(v.chain) && r.conditional {
		inside, e.divided = true, true
	}
	pool := &e.others
	if inside {
		pool = &e.inside
	}
	switch {
	case r.to.IsValid() && !r.recalls:
		pool.add(r.to)
	case !servesOne(r.target):
	case !isPool(v.chain):
		e.enter(v.table, r.target, inside)
	case !r.leaves: // recalls the endpoint of a client; those to choose from follow
	case pool.full():
		pool.part = true
	default:
		e.enter(v.table, r.target, inside)
	}
	return true
}

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

// recentDir is the directory with a file for each list of the match recent, in the
// network namespace of the thread.
const recentDir = "/proc/thread-self/net/xt_recent"

// remembered returns how long a client stays on a list, 0 if it is not on it, and its
// line in the list.
func remembered(list string, client netip.Addr, seconds uint32) (line string, left time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(recentDir, list))
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("read which clients are remembered: %w", err)
	}
	line, seen := findClient(string(text), client)
	if line == "" {
		return "", 0, nil
	}
	now, err := readJiffies()
	if err != nil {
		return "", 0, err
	}
	whole := time.Duration(seconds) * time.Second
	return line, min(whole, max(0, whole-now.since(seen))), nil
}

// findClient finds the line of a client, and when it was last seen, in jiffies.
func findClient(text string, client netip.Addr) (line string, seen uint64) {
	for line := range strings.Lines(text) {
		address, rest, _ := strings.Cut(strings.TrimPrefix(line, "src="), " ")
		if source, err := netip.ParseAddr(address); err != nil || source != client {
			continue
		}
		_, rest, _ = strings.Cut(rest, "last_seen: ")
		number, _, _ := strings.Cut(rest, " ")
		if seen, err := strconv.ParseUint(number, 10, 64); err == nil {
			return strings.TrimSpace(line), seen
		}
	}
	return "", 0
}

// jiffies is the kernel's internal clock. It is not exported, but starts at boot, five
// minutes before 2^32 jiffies (INITIAL_JIFFIES in linux/jiffies.h).
type jiffies struct {
	now uint64
	one time.Duration
}

const (
	jiffiesStart   = 1 << 32
	jiffiesAdvance = 5 * time.Minute
)

// readJiffies returns the current time. The resolution of the coarse clock is one
// jiffy.
func readJiffies() (jiffies, error) {
	var one, now unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &one); err != nil {
		return jiffies{}, fmt.Errorf("read the length of a jiffy: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return jiffies{}, fmt.Errorf("read the kernel's time: %w", err)
	}
	j := jiffies{one: time.Duration(one.Nano())}
	j.now = jiffiesStart - uint64(jiffiesAdvance/j.one) + uint64(time.Duration(now.Nano())/j.one)
	return j, nil
}

// since is how long ago a time was; one that is a little ahead is now.
func (j jiffies) since(t uint64) time.Duration {
	if t >= j.now {
		return 0
	}
	return time.Duration(j.now-t) * j.one
}
