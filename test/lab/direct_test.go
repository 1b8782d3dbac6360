//go:build linux

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/model"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The addresses of the Service of a quartet, and those of the client, by family.
var (
	directVIPs   = []netip.Addr{netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("2001:db8:18::10")}
	directClient = []netip.Addr{netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("2001:db8:1::10")}
)

const directNodePort, bulkPort = 30080, 8082

// quartet is a lab of four nodes with the real binary on each, which have the same objects.
type quartet struct {
	t       *testing.T
	l       *lab.Lab
	dirs    map[string]string
	proxies map[string]*lab.Proxy
	flags   []string
	askers  map[string]*asker // ask the proxies of some nodes
	// vipsOnly has connections go to load balancer IPs, and not to node ports of n1 too.
	vipsOnly bool
}

// startQuartet starts the proxies.
func startQuartet(t *testing.T, manifests string, flags ...string) *quartet {
	t.Helper()
	q := newQuartet(t, flags...)
	q.startAll(manifests)
	return q
}

func newQuartet(t *testing.T, flags ...string) *quartet {
	t.Helper()
	return &quartet{t: t, l: lab.StartQuartet(t), dirs: map[string]string{}, proxies: map[string]*lab.Proxy{}, flags: flags}
}

// askAt has the proxy of a node, which is not started yet, answer questions.
func (q *quartet) askAt(node string) {
	q.t.Helper()
	if q.askers == nil {
		q.askers = map[string]*asker{}
	}
	q.askers[node], _ = newAskerAt(q.t, q.l, node)
}

func (q *quartet) startAll(manifests string) {
	q.t.Helper()
	for _, n := range lab.Nodes {
		q.dirs[n] = q.t.TempDir()
		q.update(n, manifests)
		q.start(n)
	}
}

func (q *quartet) start(node string) {
	q.t.Helper()
	flags := q.flags
	if a := q.askers[node]; a != nil {
		flags = append(slices.Clone(flags), "--control-socket="+a.socket)
	}
	q.proxies[node] = launch(q.t, q.l, lab.ProxyOptions{Node: node, Manifests: q.dirs[node], Flags: append([]string{
		"--proxy-mode", "nftables", "--detect-local-mode", "ClusterCIDR", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
		"--nodeport-addresses", "192.0.2.0/24,2001:db8::/64"}, flags...)})
}

// update gives a node other objects.
func (q *quartet) update(node, manifests string) { write(q.t, q.dirs[node], "all.yaml", manifests, 0) }

func (q *quartet) host(name string) *lab.Host {
	h, err := q.l.Host(name)
	if err != nil {
		q.t.Fatal(err)
	}
	return h
}

// run runs a shell command on a host.
func (q *quartet) run(name, command string) string {
	q.t.Helper()
	out, err := q.host(name).Run(q.t.Context(), lab.Command{Args: []string{"sh", "-c", command}})
	if err != nil {
		q.t.Fatal(err)
	}
	return out
}

// endpointState is what the endpoint of the Service on a node is.
type endpointState uint8

const (
	noEndpoint endpointState = iota
	isReady
	isLight    // ready, with a fifth of the weight of others
	isDraining // it serves what it has
)

// directManifests are the nodes and a Service with endpoints on some of them.
func directManifests(annotations string, endpoints map[string]endpointState) string {
	return rangedManifests(annotations, "", endpoints)
}

// rangedManifests are they with source ranges of the Service.
func rangedManifests(annotations, ranges string, endpoints map[string]endpointState) string {
	var b strings.Builder
	for i, n := range lab.Nodes {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Node
metadata: {name: %s}
spec: {podCIDRs: ["10.244.%d.0/24", "fd00:10:244:%d::/64"]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1%d}, {type: InternalIP, address: "2001:db8::1%d"}]}
`, n, i+1, i+1, i+1, i+1)
	}
	fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default, annotations: {%s}}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [%s]
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd00:10:96::1"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: %d}
  - {name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: %d}
  - {name: b, protocol: TCP, port: 81, targetPort: %d, nodePort: %d}
status: {loadBalancer: {ingress: [{ip: %s, ipMode: VIP}, {ip: "%s", ipMode: VIP}]}}
`, annotations, ranges, directNodePort, directNodePort, bulkPort, directNodePort+1, directVIPs[0], directVIPs[1])
	for f, family := range []string{"IPv4", "IPv6"} {
		for i, n := range lab.Nodes {
			at, weight := endpoints[n], ""
			if at == noEndpoint {
				continue
			}
			if at == isLight {
				weight = `"sluice/weight": "20"`
			}
			conditions := "{ready: true}"
			if at == isDraining {
				conditions = "{ready: false, serving: true, terminating: true}"
			}
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]s-%[2]s, namespace: default, labels: {kubernetes.io/service-name: web}, annotations: {%[3]s}}
addressType: %[4]s
ports: [{name: t, protocol: TCP, port: 8080}, {name: u, protocol: UDP, port: 8080}, {name: b, protocol: TCP, port: %[5]d}]
endpoints: [{addresses: [%[6]q], nodeName: %[2]s, conditions: %[7]s}]
`, strings.ToLower(family), n, weight, family, bulkPort,
				[]string{fmt.Sprintf("10.244.%d.1", i+1), fmt.Sprintf("fd00:10:244:%d::1", i+1)}[f], conditions)
		}
	}
	return b.String()
}

const directAnnotation = `"sluice/forwarding": "direct"`

// flows are attempts of the client at the Service, in both families and protocols, at the load balancer's addresses
// and at node ports of nodes.
func (q *quartet) flows(each int, nodes ...string) (flows []lab.Flow) {
	for f, vip := range directVIPs {
		to := []netip.AddrPort{netip.AddrPortFrom(vip, 80)}
		for _, n := range nodes {
			to = append(to, netip.AddrPortFrom(q.host(n).Addrs[f], directNodePort))
		}
		for _, at := range to {
			for _, p := range []lab.Protocol{lab.TCP, lab.UDP} {
				for range each {
					flows = append(flows, lab.Flow{From: "client", Protocol: p, To: at})
				}
			}
		}
	}
	return flows
}

// allDirect reports whether all attempts are answered, by endpoints that see the client's address.
func (q *quartet) allDirect(flows []lab.Flow) error {
	for i, o := range q.l.Probe(q.t.Context(), flows) {
		if o.Kind != lab.Answered || !slices.Contains(directClient, o.Source.Addr()) {
			return fmt.Errorf("%v: %v", flows[i], o)
		}
	}
	return nil
}

// awaitDirect waits until all nodes hand packets to each other.
func (q *quartet) awaitDirect() {
	q.t.Helper()
	testkit.Eventually(q.t, func() error { return q.allDirect(q.flows(6, lab.Nodes...)) })
}

// Clients outside keep their address at load balancer IPs and node ports of every node, what comes back does not pass
// the node that they asked, and that knows nothing of their connections. Packets that are too large for a
// link on the way find out, and fragments arrive.
func TestDirectReturn(t *testing.T) {
	t.Parallel()
	q := newQuartet(t, "--direct-return=auto")
	t.Cleanup(q.show)
	q.askAt("n1")
	q.askAt("n2")
	q.startAll(directManifests(directAnnotation, map[string]endpointState{"n2": isReady, "n3": isReady, "n4": isReady}))
	q.awaitDirect()
	q.run("n1", `nft 'table netdev witness {
	counter requests { }
	counter handed { }
	counter replies { }
	chain in { type filter hook ingress device "eth0" priority -500; ip daddr 198.18.0.10 counter name requests; ip saddr 198.18.0.10 counter name replies; }
	chain out { type filter hook egress device "eth0" priority -500; ip daddr 198.18.0.10 counter name handed; ip saddr 198.18.0.10 counter name replies; }
}'; conntrack -F`)
	q.forgetConnections()
	if err := q.allDirect(q.flows(20, lab.Nodes...)); err != nil {
		t.Error(err)
	}
	counted := func(name string) (n int) {
		_, rest, _ := strings.Cut(q.run("n1", "nft list counter netdev witness "+name), "packets ")
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	if requests, handed, replies := counted("requests"), counted("handed"), counted("replies"); requests == 0 || requests != handed || replies != 0 {
		t.Errorf("of %d packets to the load balancer's address %d were handed on, and %d replies came by", requests, handed, replies)
	}
	entries := q.run("n1", "conntrack -L 2>/dev/null; conntrack -L -f ipv6 2>/dev/null")
	if strings.Contains(entries, directClient[0].String()) || strings.Contains(entries, directClient[1].String()) {
		t.Errorf("the node that was asked knows of connections:\n%s", entries)
	}
	q.testTried()
	received := q.connectToN2()
	q.testFragments()
	q.testPathMTU()
	q.testCounted(received)
	q.testCleanup()
	q.testSwitchedOff()
}

// testTried has explain try what n1 hands to another node.
func (q *quartet) testTried() {
	for _, vip := range directVIPs {
		to := netip.AddrPortFrom(vip, 80).String()
		for client, want := range map[string]string{
			"--netns=" + q.host("client").Namespace.Name: "as predicted: this node hands it to node n",
			"--from=" + outsiders[model.FamilyOf(vip)]:   "not tried: this node hands packets of clients outside to the node that the client's port chooses",
		} {
			out, errs, _ := q.askers["n1"].ask("explain", "--try", client, to)
			if !strings.Contains(out, want) {
				q.t.Errorf("tried with %s:\n%s%s", client, out, errs)
			}
		}
	}
}

// outsiders are clients that are not on this machine.
var outsiders = map[model.Family]string{model.IPv4: "203.0.113.9", model.IPv6: "2001:db8:9::9"}

var receivedFrom = regexp.MustCompile(`(?m)^sluice_direct_return_received_connections_total\{node="(.+)"\} (\d+)$`)

// received is how many connections n2 got of each other node, by its metrics.
func (q *quartet) received() map[string]int {
	q.t.Helper()
	metrics := lab.Flow{From: "n2", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	page, err := q.l.Get(metrics, "/metrics")
	if err != nil {
		q.t.Fatal(err)
	}
	out := map[string]int{}
	for _, found := range receivedFrom.FindAllStringSubmatch(page.Text, -1) {
		if out[found[1]], err = strconv.Atoi(found[2]); err != nil {
			q.t.Fatal(err)
		}
	}
	return out
}

// connectToN2 has n1 and n3 hand connections on, and returns how many of each n2 must have received at least.
func (q *quartet) connectToN2() map[string]int {
	out := q.received()
	flows := q.flows(20, "n3")
	for i, o := range q.l.Probe(q.t.Context(), flows) {
		switch {
		case o.By != "p2":
		case slices.Contains(directVIPs, flows[i].To.Addr()): // which the router leads to n1
			out["n1"]++
		default:
			out["n3"]++
		}
	}
	return out
}

// testCounted waits until n2 says how many connections it got of each node.
func (q *quartet) testCounted(want map[string]int) {
	testkit.Eventually(q.t, func() error {
		got := q.received()
		status, _, _ := q.askers["n2"].ask("status")
		for node, n := range want {
			if text := fmt.Sprintf("%d connections from %s", got[node], node); got[node] < n || !strings.Contains(status, text) {
				return fmt.Errorf("of %d connections from %s %d are counted, and status says\n%s", n, node, got[node], status)
			}
		}
		return nil
	})
}

// testCleanup has the commands of a node recognize and remove what a proxy left that was killed.
func (q *quartet) testCleanup() {
	binary, err := lab.Binary()
	if err != nil {
		q.t.Fatal(err)
	}
	if err := q.proxies["n4"].Kill(); err != nil {
		q.t.Fatal(err)
	}
	out, _ := q.host("n4").Run(q.t.Context(), lab.Command{Args: []string{binary, "check", "--manifests", q.dirs["n4"], "--hostname-override=n4",
		"--proxy-mode=nftables", "--direct-return=auto"}})
	for _, family := range []string{"IPv4", "IPv6"} {
		if want := "3 of 3 other nodes (" + family + ") on the link of eth0"; !strings.Contains(out, want) {
			q.t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, family := range []string{"netdev", "ip", "ip6"} {
		if !strings.Contains(out, "table "+family+" sluice-direct of Sluice") {
			q.t.Errorf("check does not see the table of family %s:\n%s", family, out)
		}
	}
	q.run("n4", binary+" --cleanup")
	if left := q.run("n4", "nft list ruleset"); strings.Contains(left, "sluice") {
		q.t.Errorf("after --cleanup there is\n%s", left)
	}
	q.start("n4")
	q.awaitDirect()
}

// show shows the rules of nodes after a failure.
func (q *quartet) show() {
	if !q.t.Failed() {
		return
	}
	for _, n := range lab.Nodes {
		for _, table := range []string{"netdev", "ip"} {
			out, err := q.host(n).Run(context.Background(), lab.Command{Args: []string{"nft", "list", "table", table, "sluice-direct"}})
			q.t.Logf("%s: %.6000s %v", n, out, err)
		}
	}
}

// testFragments sends datagrams that are larger than a link takes.
func (q *quartet) testFragments() {
	for f, vip := range directVIPs {
		for range 6 {
			var answer string
			err := q.host("client").Do(func() error {
				c, err := net.Dial("udp", netip.AddrPortFrom(vip, 80).String())
				if err != nil {
					return err
				}
				defer c.Close()
				buffer := make([]byte, 600)
				for range 5 { // it may be lost on a busy machine
					if _, err := c.Write(make([]byte, 4000)); err != nil {
						return err
					}
					_ = c.SetReadDeadline(testkit.Deadline(time.Second))
					n, err := c.Read(buffer)
					if answer = string(buffer[:n]); err == nil {
						return nil
					}
				}
				return errors.New("no answer")
			})
			if err != nil || !strings.Contains(answer, directClient[f].String()) {
				q.t.Errorf("a datagram of 4000 bytes to %s: %.60q, %v", vip, answer, err)
			}
		}
	}
}

// testPathMTU has the client download through a link that takes smaller packets than it says.
func (q *quartet) testPathMTU() {
	const size = 200_000
	for _, pod := range []string{"p1", "p2", "p3", "p4"} {
		listener, err := q.serveBulk(pod, size)
		if err != nil {
			q.t.Fatal(err)
		}
		defer listener.Close()
	}
	q.run("router", "ip link set client mtu 1400")
	defer q.run("router", "ip link set client mtu 1500")
	for _, vip := range directVIPs {
		for range 6 {
			n, err := q.download(netip.AddrPortFrom(vip, 81))
			if n != size || err != nil {
				q.t.Errorf("%d of %d bytes came from %s: %v", n, size, vip, err)
			}
		}
	}
}

// serveBulk has a pod send so many bytes on each connection.
func (q *quartet) serveBulk(pod string, size int) (net.Listener, error) {
	var listener net.Listener
	err := q.host(pod).Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", bulkPort))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write(make([]byte, size))
			}()
		}
	}()
	return listener, nil
}

// download reads what the client is sent.
func (q *quartet) download(from netip.AddrPort) (n int64, err error) {
	var c net.Conn
	err = q.host("client").Do(func() error {
		d := net.Dialer{Deadline: testkit.Deadline(10 * time.Second)}
		c, err = d.DialContext(q.t.Context(), "tcp", from.String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(testkit.Deadline(20 * time.Second))
	return io.Copy(io.Discard, c)
}

// testSwitchedOff starts the proxies without the feature: nothing of it is left, and clients are served.
func (q *quartet) testSwitchedOff() {
	q.flags = nil
	for _, n := range lab.Nodes {
		if err := q.proxies[n].Stop(); err != nil {
			q.t.Error(err)
		}
		q.start(n)
	}
	for _, n := range lab.Nodes {
		q.awaitNothingLeft(n)
	}
	q.forgetConnections()
	flows := q.flows(4, lab.Nodes...)
	for i, o := range q.l.Probe(q.t.Context(), flows) {
		if o.Kind != lab.Answered || slices.Contains(directClient, o.Source.Addr()) {
			q.t.Errorf("switched off, %v: %v", flows[i], o)
		}
	}
}

// awaitNothingLeft waits until a node has no rules for direct return.
func (q *quartet) awaitNothingLeft(node string) {
	q.t.Helper()
	testkit.Eventually(q.t, func() error {
		if tables := q.run(node, "nft list tables"); strings.Contains(tables, "sluice-direct") {
			return fmt.Errorf("%s has %s", node, tables)
		}
		return nil
	})
}

// talker is a connection that asks all the time.
type talker struct {
	session *lab.Session
	by      string
	err     error
	done    chan struct{}
}

var errChanged = errors.New("another one answered, or none")

// forgetConnections has nodes forget those of the client, as a new one must not have the port of one that some node
// still knows.
func (q *quartet) forgetConnections() {
	for _, n := range lab.Nodes {
		for i, family := range []string{"ipv4", "ipv6"} {
			of := fmt.Sprintf("-f %s -s %s", family, directClient[i])
			testkit.Eventually(q.t, func() error { // it gives up at an entry that goes by itself meanwhile
				q.run(n, "conntrack -D "+of+" >&2; true")
				if left := q.run(n, "conntrack -L "+of+" 2>/dev/null; true"); left != "" {
					return fmt.Errorf("%s still knows %s", n, left)
				}
				return nil
			})
		}
	}
}

// talk has connections ask all the time until the function is called that it returns. That says which broke, except
// those that were answered on nodes that died.
func (q *quartet) talk(tcp, udp int) (stop func(died ...string) error) {
	q.forgetConnections()
	ctx, cancel := context.WithCancel(q.t.Context())
	var all []*talker
	for i := range tcp + udp {
		flow := lab.Flow{From: "client", Protocol: lab.TCP, To: netip.AddrPortFrom(directVIPs[i%2], 80)}
		if i >= tcp {
			flow.Protocol = lab.UDP
		}
		if i%4 >= 2 && !q.vipsOnly {
			flow.To = netip.AddrPortFrom(q.host("n1").Addrs[i%2], directNodePort)
		}
		s, err := q.l.Open(flow)
		if err != nil {
			q.t.Fatal(err)
		}
		a, err := s.Ask()
		if err != nil {
			q.t.Fatal(err)
		}
		all = append(all, &talker{session: s, by: a.By, done: make(chan struct{})})
	}
	for _, one := range all {
		go q.listen(ctx, one)
	}
	return func(died ...string) error {
		cancel()
		broken := map[string]int{}
		var errs []error
		for _, one := range all {
			<-one.done
			one.session.Close()
			if one.err != nil && !slices.Contains(died, one.by) {
				if broken[one.by]++; len(errs) < 5 {
					errs = append(errs, fmt.Errorf("%v: %w", one.session.Flow(), one.err))
				}
			}
		}
		if len(errs) == 0 {
			return nil
		}
		return fmt.Errorf("broken of %d connections, by who answered them, are %v: %w", len(all), broken, errors.Join(errs...))
	}
}

// listen has a connection talk, and logs which nodes know it if it breaks.
func (q *quartet) listen(ctx context.Context, o *talker) {
	defer close(o.done)
	o.talk(ctx)
	if o.err == nil {
		return
	}
	client := o.session.Client()
	for _, n := range lab.Nodes {
		known, _ := q.host(n).Run(q.t.Context(), lab.Command{Args: []string{"conntrack", "-L", "-f", map[bool]string{true: "ipv4", false: "ipv6"}[client.Addr().Is4()],
			"-p", string(o.session.Flow().Protocol), "--orig-port-src", fmt.Sprint(client.Port())}})
		q.t.Logf("%v of %s on %s: %v\n%s", o.session.Flow(), client, n, o.err, known)
	}
}

func (o *talker) talk(ctx context.Context) {
	for ctx.Err() == nil {
		a, err := o.session.Ask()
		if err != nil || a.By != o.by {
			o.err = fmt.Errorf("%s, then %q at %s: %w", o.by, a.By, time.Now().Format(time.StampMilli), errors.Join(err, errChanged))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
