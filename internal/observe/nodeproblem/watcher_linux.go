package nodeproblem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/cputime"
	"sluice/internal/base/printable"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Options configures a Watcher.
type Options struct {
	Logger logr.Logger
	Clock  clock.PassiveClock // nil for the real one
	// Plan calls f with what is planned, its version, and whether an address is the node's.
	Plan func(f func(desired *plan.Desired, version uint64, own func(netip.Addr) bool))
	// Ours reports whether a chain of iptables is kube-proxy's.
	Ours func(chain string) bool
	// InIPTables says that the mode's own rules are in iptables, and accept some of what is
	// forwarded there.
	InIPTables bool
	// WithoutNFTables says that the kernel has not loaded nftables, which a question would do.
	WithoutNFTables bool
}

// Watcher finds what is wrong with a node: with settings of its kernel, and with rules of other
// programs.
type Watcher struct {
	Options
	reader reader
	root   string // where proc is mounted, for tests

	looking sync.Mutex // held during a look
	conn    *nft.Conn  // nil before the first one
	last    reading
	full    bool // the connection tracking table was, at the last look
	drops   rise // of packets for which it had no room
	strays  rise // of packets that rp_filter dropped

	mu              sync.Mutex
	chains          []chain
	particular      bool // endpoints may differ for them
	links           links
	routes          routes
	noRoom          bool                  // the kernel drops packets because the connection tracking table is full
	closed          map[model.Family]bool // those that the kernel does not forward
	obstacles       map[Path]*Obstacle    // those that were asked for since the last look
	settings, rules []model.Problem
	err             error
}

// reading is what was read last.
type reading struct {
	at             time.Time
	cost           time.Duration
	generation     uint32
	version        uint64
	paths          map[Path]struct{}
	native, legacy []chain
	dead           []netip.Prefix // ranges without a route
}

// NewWatcher returns a Watcher that has not looked yet.
func NewWatcher(o Options) *Watcher {
	o.Clock = cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	return &Watcher{Options: o, reader: reader{ours: o.Ours, accepts: o.InIPTables}}
}

// Close closes the Watcher's socket.
func (w *Watcher) Close() error {
	w.looking.Lock()
	defer w.looking.Unlock()
	if w.conn == nil {
		return nil
	}
	return w.conn.Close()
}

// Look looks at the node. That takes less than a millisecond, unless large tables have changed.
func (w *Watcher) Look(ctx context.Context) {
	w.looking.Lock()
	defer w.looking.Unlock()
	err := w.read(ctx)
	if ctx.Err() != nil {
		return
	}
	closed := map[model.Family]bool{}
	for _, f := range model.Families {
		closed[f] = !sysctl.Forwards(w.sysctls(), f)
	}
	room, noRoom := w.conntrack()
	settings := slices.Concat(forwardingOff(closed, w.last.paths), room, w.reversePath())
	chains := slices.Concat(w.last.native, w.last.legacy)
	links := links{}
	rules := advise(chains, w.last.paths, links.idle)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && (w.err == nil || w.err.Error() != err.Error()) {
		w.Logger.V(1).Info("Cannot see all rules of other programs", "reason", err.Error())
	}
	w.err, w.chains, w.closed, w.obstacles = err, chains, closed, map[Path]*Obstacle{}
	w.links, w.noRoom, w.routes = links, noRoom, routes{w.last.dead, map[netip.Addr]bool{}}
	w.particular = slices.ContainsFunc(chains, func(c chain) bool { return c.particular })
	w.settings, w.rules = settings, rules
}

// Advisories returns what the last look found wrong with settings of the kernel, and with rules
// of other programs.
func (w *Watcher) Advisories() (settings, rules []model.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.settings), slices.Clone(w.rules)
}

// Err returns why the last look could not see everything; nil if it could.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Blocked returns what keeps connections on a path from being answered, by the last look; nil
// if nothing is known that does.
func (w *Watcher) Blocked(p Path) *Obstacle {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.obstacles == nil {
		return nil
	}
	if !w.particular && !w.routes.doubtful(p.To.Addr()) {
		p.To, p.Protocol = netip.AddrPort{}, 0
	}
	o, known := w.obstacles[p]
	if !known {
		o = w.blocked(p)
		w.obstacles[p] = o
	}
	return o
}

func (w *Watcher) blocked(p Path) *Obstacle {
	if w.closed[p.Family] && p.forwarded() {
		return &Obstacle{Kind: ForwardingOff, Why: fmt.Sprintf("this node forwards no %s packets", p.Family), Remedy: forwardingRemedy(p.Family)}
	}
	if to := p.To.Addr(); w.routes.lost(to) {
		return &Obstacle{Kind: NoRoute, Why: fmt.Sprintf("this node has no route to %s", to), Remedy: noRouteRemedy}
	}
	for _, l := range p.legs() {
		for i := range w.chains {
			c := &w.chains[i]
			if !c.meets(p, l) {
				continue
			}
			l.packet.idle = w.links.idle
			if f, certain := c.fate(l.packet); f != passes && certain {
				return &Obstacle{Kind: Firewall, Why: "dropped by " + c.String(), Remedy: c.remedy([]remedy{l.accept})}
			}
		}
	}
	if w.noRoom {
		return &Obstacle{Kind: ConntrackFull, Why: "the kernel drops new connections: its table of them is full", Remedy: roomRemedy, Partial: true}
	}
	return nil
}

func (w *Watcher) sysctls() sysctl.Options { return sysctl.Options{Logger: w.Logger, Root: w.root} }

// read reads the plan and the chains, as far as they have changed.
func (w *Watcher) read(ctx context.Context) (err error) {
	if w.Clock.Since(w.last.at) < min(costFactor*w.last.cost, maxPause) {
		return w.err
	}
	w.last.cost, err = cputime.Of(func() error { return w.readAll(ctx) })
	w.last.at = w.Clock.Now()
	return err
}

func (w *Watcher) readAll(ctx context.Context) (err error) {
	w.Plan(func(desired *plan.Desired, version uint64, own func(netip.Addr) bool) {
		if w.last.paths == nil || version != w.last.version {
			w.last.paths, w.last.version = pathsIn(desired, own), version
		}
	})
	if !w.WithoutNFTables {
		err = w.readNFT(ctx)
	}
	w.last.dead = readRoutes()
	legacy, lerr := w.reader.legacy()
	if lerr == nil {
		w.last.legacy = legacy
	}
	return errors.Join(err, lerr)
}

// readNFT reads the chains of nftables. After an error those that were read before count.
func (w *Watcher) readNFT(ctx context.Context) (err error) {
	if w.conn == nil {
		if w.conn, err = nft.Dial(0, nft.SendBuffer); err != nil {
			return err
		}
	}
	generation, err := w.conn.Generation(ctx)
	if err != nil || generation == w.last.generation {
		return err
	}
	native, err := w.reader.nftables(ctx, w.conn)
	if err != nil {
		return err
	}
	w.last.native, w.last.generation = native, generation
	return nil
}

// The connection tracking table counts as full from nearlyFull percent on, until it has less
// than roomAgain.
const (
	nearlyFull = 90
	roomAgain  = 80
)

// noRouteRemedy is what to do if there is no route.
const noRouteRemedy = "see what ip route get ADDRESS says: if the pod exists, its network plugin has not set up the route to it; if it does not, its EndpointSlice is out of date"

// roomRemedy is what to do if there is no room.
const roomRemedy = "set conntrack.maxPerCore (--conntrack-max-per-core) higher, or run sysctl -w net.netfilter.nf_conntrack_max=N; conntrack -L shows whose connections they are"

// noRoomTime is for how long a dropped packet counts. Clients repeat theirs after up to 4 s.
const noRoomTime = 10 * time.Second

// conntrack finds out whether there is room for new connections, or even the kernel drops them.
func (w *Watcher) conntrack() (problems []model.Problem, drops bool) {
	count, err := sysctl.ConntrackDrops(w.sysctls())
	drops = err == nil && w.drops.see(count, 1, noRoomTime, w.Clock.Now())
	now, most, err := sysctl.Connections(w.sysctls())
	if err != nil || most == 0 { // not loaded, or without a limit
		w.full = false
		return nil, false
	}
	used := now * 100 / most
	if w.full = used >= nearlyFull || w.full && used >= roomAgain; !w.full {
		return nil, false
	}
	return []model.Problem{{
		Object: model.Object{Kind: "Connection tracking"}, Field: "nf_conntrack_max",
		Reason: fmt.Sprintf("the table of at most %d connections is full, or nearly: the kernel drops the packets of connections that do not fit", most),
		Remedy: strings.Replace(roomRemedy, "=N", fmt.Sprint("=", 2*most), 1),
	}}, drops
}

// Packets that rp_filter drops count from a few in a minute on, until none was dropped for some
// minutes: strays and spoofed ones come to every node.
const (
	fewStrays = 5
	strayTime = 5 * time.Minute
)

// reversePath finds out whether the kernel drops packets because of where they come from.
func (w *Watcher) reversePath() []model.Problem {
	dropped, err := sysctl.ReversePathDrops(w.sysctls())
	if err != nil || !w.strays.see(dropped, fewStrays, strayTime, w.Clock.Now()) {
		return nil
	}
	strict, err := sysctl.StrictReversePath(w.sysctls())
	if err != nil || len(strict) == 0 {
		return nil
	}
	return []model.Problem{strictReversePath(strict, "drops packets")}
}

func strictReversePath(on []string, does string) model.Problem {
	return model.Problem{
		Object: model.Object{Kind: "Kernel"}, Field: "net.ipv4.conf.*.rp_filter",
		Reason: fmt.Sprintf("it is strict on %s, and %s: connections whose packets come in through another interface than replies go out, as on nodes with several uplinks, get no answer",
			printable.List(on, func(name string) string { return name }), does),
		Remedy: "if such connections fail, run sysctl -w net.ipv4.conf.INTERFACE.rp_filter=2 for the interface that they come in through",
	}
}

// rise notices when a counter rises.
type rise struct {
	known       bool
	count, base int       // its value now, and at
	since       time.Time // the beginning of a minute
	noticed     time.Time // when it had last risen enough
}

// see notes the value of the counter, and reports whether it has risen by some within a minute, and
// not stood still for a time since then.
func (r *rise) see(count, by int, still time.Duration, now time.Time) bool {
	if !r.known || count < r.count {
		*r = rise{known: true, count: count, base: count, since: now}
	}
	if now.Sub(r.since) >= time.Minute {
		r.base, r.since = r.count, now
	}
	lately := !r.noticed.IsZero() && now.Sub(r.noticed) < still
	if count > r.count && (count-r.base >= by || lately) {
		r.noticed, lately = now, true
	}
	r.count = count
	return lately
}

// forwardingOff finds out whether the kernel does not forward what paths need.
func forwardingOff(closed map[model.Family]bool, paths map[Path]struct{}) (out []model.Problem) {
	for _, family := range model.Families {
		var whom hit
		for p := range paths {
			if closed[family] && p.Family == family && p.forwarded() {
				whom.add(p, remedy{})
			}
		}
		if len(whom.paths) == 0 {
			continue
		}
		out = append(out, model.Problem{
			Object: model.Object{Kind: "Kernel"}, Field: sysctl.ForwardingName(family),
			Reason: fmt.Sprintf("it is 0: the node forwards no packets, and %s to Services get no answer", whom.text()),
			Remedy: forwardingRemedy(family),
		})
	}
	return out
}

func forwardingRemedy(f model.Family) string {
	return fmt.Sprintf("run sysctl -w %s=1, and make it permanent in /etc/sysctl.d", sysctl.ForwardingName(f))
}

// Notes returns what may be wrong with the node, and cannot be decided by one look.
func Notes(logger logr.Logger) []model.Problem {
	o := sysctl.Options{Logger: logger}
	strict, err := sysctl.StrictReversePath(o)
	dropped, derr := sysctl.ReversePathDrops(o)
	if err != nil || derr != nil || len(strict) == 0 || dropped == 0 {
		return nil
	}
	return []model.Problem{strictReversePath(strict, fmt.Sprintf("has dropped %s so far", printable.Count(dropped, "packet")))}
}
