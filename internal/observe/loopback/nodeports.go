package loopback

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/backoff"
	"sluice/internal/base/notify"
	"sluice/internal/base/socketerror"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/relay"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// maxConnections bounds the TCP connections that are relayed at a time, in modes that relay no
// others.
const maxConnections = 4096

// device is the interface that all clients use.
const device = "lo"

// Options configures NodePorts. Functions may be nil.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
	// ResetRemoved resets TCP connections when their endpoint no longer serves.
	ResetRemoved bool
	// Budget bounds the connections; nil for one of its own.
	Budget *relay.Budget

	// Listening is called with the number of ports of a family that are
	// listened on.
	Listening func(family model.Family, ports int)
	// NotListening is called for each failure to listen, and Failed for those
	// whose reason is new to the owner of the Service.
	NotListening func(model.Family)
	Failed       func(service model.Name, err error)
	// Accepted is called for each TCP connection and UDP client that got an endpoint.
	Accepted func()
	// Tried is called after each attempt to open a TCP connection to an endpoint.
	Tried func(dataplane.Attempt)
	// Refused is called for each TCP connection and each UDP packet that no
	// endpoint took.
	Refused func(model.Family, model.Protocol)
}

// NodePorts serves the node ports of all Services on loopback addresses.
type NodePorts struct {
	Options
	on      bool // there are addresses to serve on; used by the engine's goroutine
	changed *notify.Mailbox[changed]

	// The rest belongs to the goroutine of Run.
	settings    plan.Settings
	ports       map[listenAddr]*port
	failing     map[listenAddr]*port
	listening   map[model.Family]int
	draining    sync.WaitGroup
	logSCTPOnce sync.Once
}

// changed is what Run has to look at.
type changed struct {
	all   bool // all frontends
	dirty map[plan.Key]struct{}
}

// New returns NodePorts that are idle until Run.
func New(o Options) *NodePorts {
	o.Clock = cmp.Or[clock.Clock](o.Clock, clock.RealClock{})
	if o.Budget == nil {
		var err error
		if o.Budget, err = relay.ProcessBudget(maxConnections); err != nil {
			o.Logger.Error(err, "Node ports on loopback addresses cannot be served")
			o.Budget = relay.NewBudget(0)
		}
	}
	return &NodePorts{
		Options:   o,
		changed:   notify.NewMailbox[changed](),
		ports:     map[listenAddr]*port{},
		failing:   map[listenAddr]*port{},
		listening: map[model.Family]int{},
	}
}

// Committed makes Run look at what changed.
func (n *NodePorts) Committed(c *engine.Commit) {
	if s := c.Change.Settings; s != nil {
		n.on = len(s.LoopbackIPs) > 0
	}
	n.changed.Put(func(to *changed) bool {
		to.all = to.all || c.Change.Settings != nil
		if n.on && !to.all {
			to.touch(c.Change)
		}
		return to.all || len(to.dirty) > 0
	})
}

func (to *changed) touch(change *plan.Change) {
	if to.dirty == nil {
		to.dirty = map[plan.Key]struct{}{}
	}
	add := func(key plan.Key) {
		if key.NodePort() {
			to.dirty[key] = struct{}{}
		}
	}
	for _, f := range slices.Concat(change.Set, change.Serving) {
		add(f.Key)
	}
	for _, key := range change.Removed {
		add(key)
	}
}

// Run follows the engine until ctx ends, and then ends all connections. It is
// called once.
func (n *NodePorts) Run(ctx context.Context, e engine.Inspector) error {
	defer n.draining.Wait()
	defer n.keep(nil)
	for {
		retry, stop := backoff.NewTimer(n.Clock, n.failed)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-n.changed.Signal:
			n.follow(ctx, e)
		case <-retry:
			n.retry()
		}
		stop()
	}
}

func (n *NodePorts) follow(ctx context.Context, e engine.Inspector) {
	look := n.changed.Take()
	frontends := map[plan.Key]*plan.Frontend{} // nil for one that is gone
	e.Inspect(func(v engine.View) {
		d := v.Desired
		n.settings = d.Settings
		for key := range look.dirty {
			frontends[key] = d.Frontends[key]
		}
		if !look.all || len(n.settings.LoopbackIPs) == 0 {
			return
		}
		for key, f := range d.Frontends {
			if key.NodePort() {
				frontends[key] = f
			}
		}
	})
	if look.all {
		n.keep(frontends)
	}
	for key, f := range frontends {
		n.set(ctx, key, f)
	}
	n.report()
}

// keep removes all ports that are not served any more.
func (n *NodePorts) keep(frontends map[plan.Key]*plan.Frontend) {
	for at, p := range n.ports {
		if frontends[p.frontend.Key] == nil || !slices.Contains(n.settings.LoopbackIPs, at.address.Addr()) {
			n.remove(at)
		}
	}
	n.report()
}

// set serves a frontend, or stops to if it is nil.
func (n *NodePorts) set(ctx context.Context, key plan.Key, f *plan.Frontend) {
	if !plan.ProxyForwards(key.Protocol) {
		n.logSCTPOnce.Do(func() {
			n.Logger.Info("Node ports of SCTP are not served on loopback addresses", "frontend", key.String())
		})
		return
	}
	for _, ip := range n.settings.LoopbackAddrs(key.Family()) {
		at := listenAddr{netip.AddrPortFrom(ip, key.Port), key.Protocol}
		if f == nil || !f.Admits(ip) {
			n.remove(at)
			continue
		}
		p := n.ports[at]
		if p == nil {
			p = &port{listenAddr: at, relay: n.newRelay(ctx, at)}
			n.ports[at] = p
		}
		p.frontend = f
		n.try(p)
	}
}

func (n *NodePorts) newRelay(ctx context.Context, at listenAddr) *relay.Relay {
	family := at.family()
	return relay.New(ctx, relay.Options{
		Address: at.address, Protocol: at.protocol, Device: device, Budget: n.Budget,
		ResetRemoved: n.ResetRemoved, Logger: n.Logger, Clock: n.Clock,
		Accepted: n.Accepted, Tried: n.Tried,
		Refused: func(relay.Refusal) { n.Refused(family, at.protocol) },
	})
}

// try gives a port its route, which may make it listen.
func (n *NodePorts) try(p *port) {
	listened := p.relay.Listening()
	err := p.relay.Set(n.settings.LoopbackRoute(p.frontend), p.frontend.Serves, time.Duration(p.frontend.Affinity)*time.Second)
	n.count(p, listened)
	if err == nil {
		delete(n.failing, p.listenAddr)
		p.succeeded(n.Logger)
		return
	}
	n.failing[p.listenAddr] = p
	n.NotListening(p.family())
	if p.tries.Log(p.log(n.Logger), err, n.Clock.Now(), "listen on a loopback node port", remedy(err)) {
		n.Failed(p.frontend.Service, err)
	}
}

// remove releases the address immediately. Established connections go on.
func (n *NodePorts) remove(at listenAddr) {
	p := n.ports[at]
	if p == nil {
		return
	}
	listened := p.relay.Listening()
	p.relay.Close()
	n.count(p, listened)
	n.draining.Go(p.relay.Wait)
	delete(n.ports, at)
	delete(n.failing, at)
}

// count tracks whether a port started or stopped to listen.
func (n *NodePorts) count(p *port, listened bool) {
	switch listens := p.relay.Listening(); {
	case listens && !listened:
		n.listening[p.family()]++
	case listened && !listens:
		n.listening[p.family()]--
	}
}

func (n *NodePorts) report() {
	for _, family := range model.Families {
		n.Listening(family, n.listening[family])
	}
}

func (n *NodePorts) retry() {
	now := n.Clock.Now()
	for _, p := range n.failing {
		if p.tries.Due(now) {
			n.try(p)
		}
	}
	n.report()
}

func (n *NodePorts) failed(yield func(*backoff.Tries) bool) {
	for _, p := range n.failing {
		if !yield(&p.tries) {
			return
		}
	}
}

// listenAddr is where a node port is served.
type listenAddr struct {
	address  netip.AddrPort
	protocol model.Protocol
}

func (p listenAddr) family() model.Family { return model.FamilyOf(p.address.Addr()) }

// port is a node port on one address.
type port struct {
	listenAddr
	frontend *plan.Frontend
	relay    *relay.Relay
	tries    backoff.Tries // to listen
}

func (p *port) log(to logr.Logger) logr.Logger {
	return to.WithValues("service", p.frontend.Service.String(), "address", p.address.String(), "protocol", p.protocol.String())
}

func (p *port) succeeded(log logr.Logger) {
	if p.tries.Failures() > 0 {
		p.log(log).Info("Listening on a loopback node port")
	}
	p.tries.Succeed()
}

// remedy returns what an administrator can do about a failure to listen.
func remedy(err error) string {
	if errors.Is(err, socketerror.AddressNotAvailable) {
		return "give the address to the interface lo, or leave it out of --nodeport-addresses: 127.0.0.0/8 is localhost without IPv6"
	}
	return relay.Remedy(err)
}
