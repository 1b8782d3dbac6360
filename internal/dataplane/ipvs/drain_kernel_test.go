//go:build linux && ipvs

// These tests need a kernel with IPVS and dummy links, and modprobe. They mostly wait, at
// least the ten seconds that IPVS takes to forget a connection.

package ipvs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/dataplane/ipvs/leftover"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/localroute"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// command runs a command in the namespace and returns its output.
var command = netnstest.Run

// remove removes what is left over, while nothing is running.
func remove(t *testing.T) {
	t.Helper()
	if err := Remove(t.Context(), dataplane.RemoveOptions{Logger: logr.Discard()}); err != nil {
		t.Fatal(err)
	}
}

// key returns the key of the virtual service at an address and port.
func key(at string, protocol uint8) ipvs.Key {
	ap := netip.MustParseAddrPort(at)
	return ipvs.Key{Addr: ap.Addr(), Port: ap.Port(), Protocol: protocol}
}

// The addresses of the tests, by family.
var (
	clusterIPs = []string{"10.96.0.10", "fd00:96::a"}  // of upstream's virtual services
	ownIPs     = []string{"10.96.0.20", "fd00:96::14"} // of ours
	nodeIPs    = []string{"192.0.2.254", "2001:db8:2::fe"}
)

// network is a node with three pods, and a host outside.
type network struct {
	conn             *ipvs.Conn
	node             *netnstest.Namespace // the test is in it
	pod1, pod2, pod3 *netnstest.Namespace
	client           *netnstest.Namespace
	pods             map[string][]string // addresses
}

// newNetwork makes the network. The first two pods answer on port 8080.
func newNetwork(t *testing.T) *network {
	t.Helper()
	for _, module := range []string{"ip_vs", "ip_vs_rr"} {
		command(t, "", "modprobe", module)
	}
	n := &network{node: netnstest.Enter(t), pods: map[string][]string{}}
	command(t, "", "ip", "link", "set", "lo", "up")
	for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/vs/conntrack", "net/ipv4/vs/expire_nodest_conn"} {
		if err := os.WriteFile("/proc/sys/"+s, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	n.pod1 = n.attach(t, "pod1", "10.244.1.1", "fd00:10:244:1::1", "10.244.1.254", "fd00:10:244:1::fe")
	n.pod2 = n.attach(t, "pod2", "10.244.2.1", "fd00:10:244:2::1", "10.244.2.254", "fd00:10:244:2::fe")
	n.pod3 = n.attach(t, "pod3", "10.244.3.1", "fd00:10:244:3::1", "10.244.3.254", "fd00:10:244:3::fe")
	n.client = n.attach(t, "client", "192.0.2.1", "2001:db8:2::1", nodeIPs[0], nodeIPs[1])
	command(t, "", "ip", "route", "add", "default", "via", "192.0.2.1")
	command(t, "", "ip", "-6", "route", "add", "default", "via", "2001:db8:2::1")
	for _, network := range []string{"tcp4", "tcp6"} {
		n.serve(t, n.pod1, "pod1", network)
		n.serve(t, n.pod2, "pod2", network)
	}
	var err error
	if n.conn, err = ipvs.Dial(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.conn.Close() })
	return n
}

// attach adds a host, with an address of each family at either end of its link.
func (n *network) attach(t *testing.T, name, ip4, ip6, node4, node6 string) *netnstest.Namespace {
	t.Helper()
	ns := netnstest.New(t)
	command(t, "", "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0-"+name)
	peer, err := netlink.LinkByName("eth0-" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(peer, ns.FD()); err != nil {
		t.Fatal(err)
	}
	up := func(run func(testing.TB, string, string, ...string) string, link, ip4, ip6 string) {
		run(t, "", "ip", "link", "set", link, "up")
		run(t, "", "ip", "address", "add", ip4+"/24", "dev", link)
		run(t, "", "ip", "address", "add", ip6+"/64", "dev", link, "nodad")
	}
	up(netnstest.Run, name, node4, node6)
	up(ns.Run, "eth0-"+name, ip4, ip6)
	ns.Run(t, "", "ip", "route", "add", "default", "via", node4)
	ns.Run(t, "", "ip", "-6", "route", "add", "default", "via", node6)
	n.pods[name] = []string{ip4, ip6}
	return ns
}

// serve answers connections with the name of the pod and the client's address, and then
// repeats each line.
func (n *network) serve(t *testing.T, ns *netnstest.Namespace, name, network string) {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen(network, ":8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "%s %s\n", name, from)
				io.Copy(c, c)
			}()
		}
	}()
}

// add adds a virtual service of TCP that leads to pod1.
func (n *network) add(t *testing.T, s ipvs.Service) {
	t.Helper()
	s.Scheduler = "rr"
	var b ipvs.Batch
	b.AddService(&s)
	pod := n.pods["pod1"][0]
	if s.Addr.Is6() {
		pod = n.pods["pod1"][1]
	}
	b.AddDestination(s.Key, ipvs.Destination{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(pod), 8080), Weight: 1})
	if err := n.conn.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// addUpstream adds what upstream's ipvs mode has: virtual services at port 80 of the
// cluster IPs, the link, which is down, and a set. A node port is in use in IPv4.
func (n *network) addUpstream(t *testing.T) {
	t.Helper()
	// Its rules make the kernel track connections, and translate the node's source.
	command(t, `table inet upstream {
	chain services { ip daddr 10.96.0.0/16 ip saddr 10.96.0.0/16 meta mark set 0x4000; ip6 daddr fd00:96::/64 ip6 saddr fd00:96::/64 meta mark set 0x4000; }
	chain prerouting { type nat hook prerouting priority dstnat; jump services; }
	chain output { type nat hook output priority -100; jump services; }
	chain postrouting { type nat hook postrouting priority srcnat; meta mark 0x4000 masquerade; }
}
`, "nft", "-f", "-")
	command(t, "", "ip", "link", "add", leftover.Link, "type", "dummy")
	for _, ip := range clusterIPs {
		addLinkAddress(t, ip)
		n.add(t, ipvs.Service{Key: key(net.JoinHostPort(ip, "80"), unix.IPPROTO_TCP)})
	}
	command(t, "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n", "ipset", "restore")
	n.add(t, ipvs.Service{Key: key(nodeIPs[0]+":30080", unix.IPPROTO_TCP)})
}

func addLinkAddress(t *testing.T, ip string) {
	t.Helper()
	command(t, "", "ip", "address", "add", ip, "dev", leftover.Link)
}

// addOwn adds virtual services of ours at port 80, and the routes to them.
func (n *network) addOwn(t *testing.T, ips ...string) {
	t.Helper()
	want := map[netip.Prefix]struct{}{}
	for _, ip := range ips {
		n.add(t, ipvs.Service{Key: key(net.JoinHostPort(ip, "80"), unix.IPPROTO_TCP), Timeout: leftover.OwnerTimeout})
		a := netip.MustParseAddr(ip)
		want[netip.PrefixFrom(a, a.BitLen())] = struct{}{}
	}
	if err := n.routes(t).Add(want, model.Families[:]); err != nil {
		t.Fatal(err)
	}
}

// routes opens the routes of the node.
func (n *network) routes(t *testing.T) *localroute.Table {
	t.Helper()
	r, err := leftover.OpenRoutes(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// run has a mode serve all that the virtual services are for, by a pod, and removes
// upstream's rules.
func (n *network) run(t *testing.T, m dataplane.Mode, pod string) dataplane.Dataplane {
	t.Helper()
	d, err := m.Open(t.Context(), dataplane.Options{Logger: testr.New(t), NetNS: n.node.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	config := plan.Config{DropInvalid: true}
	if m.Adjust != nil {
		m.Adjust(&config)
	}
	desired := &plan.Desired{
		Settings: plan.Settings{
			NodePortIPs: testkit.Addrs(nodeIPs...), ServiceCIDRs: testkit.Prefixes("10.96.0.0/16", "fd00:96::/112"),
			MasqueradeMark: 1 << 14, DropInvalid: config.DropInvalid, ExclusiveIPs: config.Balancer != plan.Balancer{},
		},
		Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{},
	}
	add := func(k plan.Key, kind plan.Kind) {
		to := n.pods[pod][slices.Index(model.Families[:], k.Family())]
		desired.Frontends[k] = &plan.Frontend{
			Key: k, Kind: kind, Service: model.Name{Namespace: "default", Name: "web"}, Port: "http",
			Route: plan.Route{Endpoints: dataplanetest.Endpoints(net.JoinHostPort(to, "8080"))},
		}
		if desired.Settings.ExclusiveIPs {
			desired.Frontends[k].Route.Balancer = &config.Balancer
		}
	}
	for _, ip := range slices.Concat(clusterIPs, ownIPs) {
		k := dataplanetest.Key(net.JoinHostPort(ip, "80"), model.TCP)
		desired.ClusterIPs[k.Addr] = struct{}{}
		add(k, plan.ClusterIP)
	}
	add(plan.NodePortKey(model.IPv4, 30080, model.TCP), plan.NodePort)
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired))
	command(t, "add table inet upstream; delete table inet upstream", "nft", "-f", "-")
	return d
}

// names returns the names of all virtual services.
func (n *network) names(t *testing.T) (names []string) {
	t.Helper()
	list, err := n.conn.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		names = append(names, s.String())
	}
	slices.Sort(names)
	return names
}

// held is a connection that a test holds.
type held struct {
	net.Conn
	lines *bufio.Reader
	name  string
	// pod answered, and saw the client at this address.
	pod, source string
}

// connect connects from a host to an address and port.
func connect(t *testing.T, from *netnstest.Namespace, name, to string) *held {
	t.Helper()
	h := &held{name: name + " to " + to}
	err := from.Do(func() (err error) {
		h.Conn, err = net.DialTimeout("tcp", to, testkit.Scaled(testkit.Timeout))
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	t.Cleanup(func() { h.Close() })
	h.SetDeadline(testkit.Deadline(testkit.Timeout))
	h.lines = bufio.NewReader(h)
	line, err := h.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	h.pod, h.source, _ = strings.Cut(strings.TrimSpace(line), " ")
	return h
}

// ask sends a line over the connection and waits for it to come back.
func (h *held) ask() error {
	h.SetDeadline(testkit.Deadline(testkit.Timeout))
	if _, err := fmt.Fprintln(h, "still there?"); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	if _, err := h.lines.ReadString('\n'); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	return nil
}

// reset ends the connection in a way that IPVS forgets it soon.
func (h *held) reset() {
	h.Conn.(*net.TCPConn).SetLinger(0)
	h.Close()
}

// hold makes connections to an address from a pod, from outside and from the node.
func (n *network) hold(t *testing.T, to ...string) (all []*held) {
	t.Helper()
	for _, to := range to {
		for name, from := range map[string]*netnstest.Namespace{"pod": n.pod3, "client": n.client, "node": n.node} {
			h := connect(t, from, name, to)
			if h.pod != "pod1" {
				t.Fatalf("%s is answered by %s", h.name, h.pod)
			}
			all = append(all, h)
		}
	}
	return all
}

// byNode separates the connections of the node.
func byNode(all []*held) (node, others []*held) {
	for _, h := range all {
		if strings.HasPrefix(h.name, "node ") {
			node = append(node, h)
		} else {
			others = append(others, h)
		}
	}
	return node, others
}

func resetAll(all []*held) {
	for _, h := range all {
		h.reset()
	}
}

func askAll(t *testing.T, all []*held) {
	t.Helper()
	for _, h := range all {
		if err := h.ask(); err != nil {
			t.Error(err)
		}
	}
}

// checkNew makes new connections from the node, which must be answered by a pod, and come
// from an address of the node.
func (n *network) checkNew(t *testing.T, pod string, to ...string) {
	t.Helper()
	for _, to := range to {
		h := connect(t, n.node, "node", to)
		if h.pod != pod || slices.Contains(clusterIPs, h.source) {
			t.Errorf("a new connection, %s, is answered by %s, which sees %s", h.name, h.pod, h.source)
		}
		h.reset()
	}
}

// draining is a call of Drain.
type draining struct {
	mu       sync.Mutex
	reported []dataplane.Draining
	done     chan error
}

// drain starts to drain on the node.
func (n *network) drain(t *testing.T, o dataplane.DrainOptions) *draining {
	t.Helper()
	d := &draining{done: make(chan error, 1)}
	o.Logger = testr.New(t)
	o.Report = func(left dataplane.Draining) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.reported = append(d.reported, left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { d.done <- n.node.Do(func() error { return leftover.Drain(ctx, o) }) }()
	t.Cleanup(cancel)
	return d
}

// waitFor waits until so many services and connections are reported.
func (d *draining) waitFor(t *testing.T, services, connections int) {
	t.Helper()
	testkit.Eventually(t, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.reported) > 0 {
			if last := d.reported[len(d.reported)-1]; last.Services == services && last.Connections == connections {
				return nil
			}
		}
		return fmt.Errorf("reported %+v, want %d services and %d connections at last", d.reported, services, connections)
	})
}

// end waits until Drain ends.
func (d *draining) end(t *testing.T) {
	t.Helper()
	if err := testkit.Receive(t, d.done, "the end of Drain"); err != nil {
		t.Fatal(err)
	}
}

// linkLocal are the lines about addresses that the kernel adds a while after a link.
var linkLocal = regexp.MustCompile(`(?m)^.* fe80::.*\n`)

// routing lists rules, routes and sets.
func routing(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, family := range []string{"-4", "-6"} {
		b.WriteString(command(t, "", "ip", family, "rule") + command(t, "", "ip", family, "route", "show", "table", "all"))
	}
	return linkLocal.ReplaceAllString(b.String(), "") + command(t, "", "ipset", "list", "-name")
}

func links(t *testing.T) (names []string) {
	t.Helper()
	list, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	return names
}

// at returns ports 80 of addresses.
func at(ips ...string) (out []string) {
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, "80"))
	}
	return out
}

func TestConnectionsSurviveDrain(t *testing.T) {
	t.Parallel()
	for _, m := range []dataplane.Mode{nftables.Mode, iptables.Mode} {
		t.Run("into "+m.Name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			before, linksBefore := routing(t), links(t)
			n.addUpstream(t)
			n.addOwn(t, ownIPs...)
			frontends := slices.Concat(at(clusterIPs...), at(ownIPs...), []string{nodeIPs[0] + ":30080"})
			all := n.hold(t, frontends...)
			d := n.drain(t, dataplane.DrainOptions{Timeout: time.Hour, Running: n.run(t, m, "pod2")})
			d.waitFor(t, 5, len(all))
			askAll(t, all)
			n.checkNew(t, "pod2", frontends...)
			resetAll(all[:6])
			d.waitFor(t, 3, len(all)-6)
			askAll(t, all[6:])
			resetAll(all[6:])
			d.end(t)
			d.waitFor(t, 0, 0)
			n.checkGone(t, before, linksBefore)
			n.checkNew(t, "pod2", frontends...)
		})
	}
}

// checkGone checks that nothing is left but what was there before.
func (n *network) checkGone(t *testing.T, routes string, before []string) {
	t.Helper()
	if got := n.names(t); got != nil {
		t.Errorf("virtual services are left: %q", got)
	}
	if diff := cmp.Diff(routes, routing(t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, links(t)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestTimeoutCutsConnections(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before, linksBefore := routing(t), links(t)
	n.addUpstream(t)
	all := n.hold(t, at(clusterIPs...)...)
	d := n.drain(t, dataplane.DrainOptions{Timeout: time.Second, Running: n.run(t, nftables.Mode, "pod2")})
	d.waitFor(t, 2, len(all))
	d.end(t)
	d.waitFor(t, 0, 0)
	// pod2 does not know the connections that the rules lead to it now. The node's
	// sockets are bound to addresses that are gone.
	_, others := byNode(all)
	for _, h := range others {
		if err := h.ask(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s is not reset: %v", h.name, err)
		}
	}
	n.checkGone(t, before, linksBefore)
}

// addForeign adds virtual services of other programs, and returns the names of all.
func (n *network) addForeign(t *testing.T) []string {
	t.Helper()
	n.add(t, ipvs.Service{Key: ipvs.Key{Addr: netip.IPv4Unspecified(), Mark: 7}})
	n.add(t, ipvs.Service{Key: key("192.0.2.254:80", unix.IPPROTO_TCP)})
	n.add(t, ipvs.Service{Key: key("[2001:db8:2::fe]:80", unix.IPPROTO_TCP), Timeout: leftover.OwnerTimeout, Flags: ipvs.Persistent})
	return n.names(t)
}

func TestDrainLeavesForeignServices(t *testing.T) {
	n := newNetwork(t)
	want := n.addForeign(t)
	n.addUpstream(t)
	addLinkAddress(t, "10.97.0.1")
	n.add(t, ipvs.Service{Key: key("10.97.0.1:80", unix.IPPROTO_TCP)})
	excluded := connect(t, n.client, "client", "10.97.0.1:80")
	n.drain(t, dataplane.DrainOptions{ModeSettings: dataplane.ModeSettings{
		IPVS: dataplane.IPVS{ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}}}}).end(t)
	want = append(want, "10.97.0.1:80/TCP")
	slices.Sort(want)
	if diff := cmp.Diff(want, n.names(t)); diff != "" {
		t.Errorf("virtual services (-want +got):\n%s", diff)
	}
	if got := command(t, "", "ip", "-brief", "address", "show", "dev", leftover.Link); !strings.Contains(got, "10.97.0.1/32") || strings.Contains(got, clusterIPs[0]) {
		t.Errorf("addresses of the link: %s", got)
	}
	askAll(t, []*held{excluded, connect(t, n.client, "client", "10.97.0.1:80")})
}

func TestCleanupLeavesForeignServices(t *testing.T) {
	n := newNetwork(t)
	want, before, linksBefore := n.addForeign(t), routing(t), links(t)
	n.addUpstream(t)
	n.addOwn(t, ownIPs...)
	remove(t)
	if diff := cmp.Diff(want, n.names(t)); diff != "" || len(want) != 3 {
		t.Errorf("virtual services (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, routing(t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(linksBefore, links(t)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

// This mode adopts upstream's virtual services, with their connections. Another mode that
// comes next drains them.
func TestDrainIntoThisModeAndOut(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	before, linksBefore := routing(t), links(t)
	n.addUpstream(t)
	n.add(t, ipvs.Service{Key: key(clusterIPs[0]+":81", unix.IPPROTO_TCP)}) // of no Service
	frontends := append(at(clusterIPs...), nodeIPs[0]+":30080")
	all := n.hold(t, frontends...)
	node, others := byNode(all)

	running := n.run(t, Mode, "pod1")
	d := n.drain(t, dataplane.DrainOptions{Timeout: time.Hour, Running: running})
	d.waitFor(t, 2, 2) // those from upstream's addresses
	if got := n.names(t); slices.Contains(got, "10.96.0.10:81/TCP") || !slices.Contains(got, "10.96.0.10:80/TCP") {
		t.Errorf("virtual services: %q", got)
	}
	askAll(t, all)
	n.checkNew(t, "pod1", frontends...)
	resetAll(node)
	d.end(t)
	if got := command(t, "", "ip", "-brief", "address", "show", "dev", leftover.Link); strings.Contains(got, "96") {
		t.Errorf("addresses of the link: %s", got)
	}
	if got := routing(t); strings.Contains(got, "51008") || strings.Contains(got, leftover.Link) {
		t.Errorf("routes are left:\n%s", got)
	}
	askAll(t, others)
	n.checkNew(t, "pod1", frontends...)

	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	others = append(others, n.hold(t, frontends...)...)
	d = n.drain(t, dataplane.DrainOptions{Timeout: time.Hour, Running: n.run(t, nftables.Mode, "pod2")})
	d.waitFor(t, 3, len(others))
	askAll(t, others)
	n.checkNew(t, "pod2", frontends...)
	resetAll(others)
	d.end(t)
	n.checkGone(t, before, linksBefore)
}
