//go:build linux

package lab_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// Whatever the weights are, new connections follow them by every way to a Service, and a
// change of weights moves no connection.
func TestRandomWeights(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d (repeat with -seed)", *seed)
	inEachMode(t, func(t *testing.T, mode string) {
		rng := rand.New(rand.NewPCG(*seed, 0))
		text := `# Random weights.
# semantics: weights
let web 10.96.0.10 fd00:10:96::10
let balancer 198.18.0.20 2001:db8:18::20
let local 10.96.0.11 fd00:10:96::11
service web LoadBalancer 80:8080/tcp,udp nodePort=30080 ingress=balancer
service local LoadBalancer 80:8080/udp nodePort=30081 externalTrafficPolicy=Local internalTrafficPolicy=Local
`
		for i := range 2 {
			all, shares := randomWeights(rng, "pod1", "pod2", "remote1", "remote2")
			text += "endpoints web " + all + "\n"
			some, localShares := randomWeights(rng, "pod1", "pod2")
			text += "endpoints local " + some + " remote1(weight=500)\n"
			if i == 0 {
				text += "start\nopen held pod3,client -> web:80\n"
			}
			text += "expect pod3,client -> web:80 udp answered by " + shares + " evenly\n" +
				"expect client -> node1:30080,balancer:80 udp answered by " + shares + " evenly\n" +
				"expect pod3 -> local:80 udp answered by " + localShares + " evenly\n" +
				"expect client -> node1:30081 udp answered by " + localShares + " evenly\n" +
				"alive held\n"
		}
		s, err := scenario.Parse("random-weights", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context(), scenario.Options{Mode: mode, Digest: lab.Digest, Logf: t.Logf}); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
}

// randomWeights returns endpoints with weights, and the shares that these mean. None is
// so small that it might not be seen.
func randomWeights(rng *rand.Rand, hosts ...string) (endpoints, shares string) {
	var list, by []string
	scale := 1 + rng.IntN(6000)
	for _, host := range hosts {
		weight := scale*(1+rng.IntN(9)) + rng.IntN(1+scale/10)
		list = append(list, fmt.Sprintf("%s(weight=%d)", host, weight))
		by = append(by, fmt.Sprintf("%s*%d", host, weight))
	}
	return strings.Join(list, " "), strings.Join(by, ",")
}

// Clients find the same endpoint on every node, whatever happened there before, also
// after a restart, and explain names it.
func TestHashesAgree(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		for _, algorithm := range []model.Algorithm{model.SourceHash, model.Maglev} {
			var c plan.Config
			if adjust := scenario.Modes[mode].Adjust; adjust != nil {
				adjust(&c)
			}
			if c.Algorithms.Has(algorithm) {
				t.Run(algorithm.String(), func(t *testing.T) { testHash(t, mode, algorithm) })
			}
		}
	})
}

func testHash(t *testing.T, mode string, algorithm model.Algorithm) {
	all := []string{"pod1", "pod2", "pod3", "remote1", "remote2"}
	one := newHashNode(t, mode, algorithm)
	one.set(all...)
	want := one.settled()

	other := newHashNode(t, mode, algorithm)
	other.set("remote2", "pod1")
	other.set("remote2", "pod3", "pod2")
	other.restart()
	other.set()
	other.set("remote2", "remote1", "pod3", "pod2", "pod1")
	if got := other.settled(); !maps.Equal(got, want) {
		t.Errorf("after another history clients get\n%v, want\n%v", got, want)
	}
	one.restart()
	if got := one.settled(); !maps.Equal(got, want) {
		t.Errorf("after a restart clients get\n%v, want\n%v", got, want)
	}
	explained := 0
	for client, at := range want {
		if explained++; explained <= 10 {
			one.explains(client, at)
		}
	}

	if algorithm != model.Maglev {
		return
	}
	other.set(all[1:]...)
	moved := 0
	for client, at := range other.settled() {
		if at != want[client] {
			moved++
		}
	}
	if most := len(want)/len(all) + len(want)/20 + len(want)/10; moved > most { // a tenth for the small sample
		t.Errorf("%d of %d clients move when one of %d endpoints leaves, want at most %d", moved, len(want), len(all), most)
	}
}

// hashNode is a lab whose Service goes by the client's address.
type hashNode struct {
	t         *testing.T
	lab       *lab.Lab
	mode, dir string
	algorithm model.Algorithm
	asker     *asker
	flag      string
	proxy     *lab.Proxy
	clients   []netip.Addr
}

func newHashNode(t *testing.T, mode string, algorithm model.Algorithm) *hashNode {
	t.Helper()
	n := &hashNode{t: t, lab: lab.Start(t), mode: mode, dir: t.TempDir(), algorithm: algorithm}
	n.asker, n.flag = newAsker(t, n.lab)
	var addresses strings.Builder
	for i := range 100 {
		four := netip.AddrFrom4([4]byte{198, 51, 101, byte(i + 1)})
		six := netip.MustParseAddr(fmt.Sprintf("2001:db8:51::%x", i+1))
		n.clients = append(n.clients, four, six)
		fmt.Fprintf(&addresses, "ip addr add %s/32 dev lo\nip addr add %s/128 dev lo nodad\n", four, six)
	}
	n.run("client", addresses.String())
	n.run("node1", `ip route add 198.51.101.0/24 via 198.51.100.10 dev eth0 onlink
ip route add 2001:db8:51::/64 via 2001:db8:1::10 dev eth0 onlink`)
	return n
}

func (n *hashNode) run(host, script string) {
	n.t.Helper()
	h, err := n.lab.Host(host)
	if err == nil {
		_, err = h.Run(n.t.Context(), lab.Command{Args: []string{"sh", "-ec", script}})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// set gives the Service endpoints, and starts the proxy if it does not run yet.
func (n *hashNode) set(hosts ...string) {
	n.t.Helper()
	mark := 0
	if n.proxy != nil {
		mark = n.proxy.Log().Len()
	}
	annotation := "namespace: default, annotations: {sluice/algorithm: " + n.algorithm.String() + "}}"
	service, _, _ := strings.Cut(dualManifests, "---")
	write(n.t, n.dir, "web.yaml", strings.Replace(service, "namespace: default}", annotation, 1)+
		lab.EndpointSlice("IPv4", "web", "http", hosts...)+lab.EndpointSlice("IPv6", "web", "http", hosts...), 0)
	if n.proxy == nil {
		n.start()
		return
	}
	settle(n.t, n.proxy, n.dir, mark)
}

func (n *hashNode) start() {
	n.t.Helper()
	n.proxy = startProxy(n.t, n.lab, n.mode, lab.ProxyOptions{
		Manifests: n.dir, Flags: []string{n.flag, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48"},
	})
	settle(n.t, n.proxy, n.dir, 0)
	n.asker.ready()
}

func (n *hashNode) restart() {
	n.t.Helper()
	if err := n.proxy.Kill(); err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

// settled returns the endpoint that each client gets. Where the proxy connects to it, another one takes the
// client if that is late, as on a busy machine: then all clients must get the same twice.
func (n *hashNode) settled() (got map[netip.Addr]netip.AddrPort) {
	n.t.Helper()
	if got = n.endpoints(); !scenario.Modes[n.mode].InProcess {
		return got
	}
	testkit.Eventually(n.t, func() error {
		before := got
		if got = n.endpoints(); !maps.Equal(got, before) {
			return fmt.Errorf("clients get\n%v, and then\n%v", before, got)
		}
		return nil
	})
	return got
}

// endpoints returns the endpoint that each client gets at once.
func (n *hashNode) endpoints() map[netip.Addr]netip.AddrPort {
	n.t.Helper()
	var flows []lab.Flow
	for _, client := range n.clients {
		to := netip.MustParseAddrPort("10.96.0.10:80")
		if client.Is6() {
			to = netip.MustParseAddrPort("[fd00:10:96::10]:80")
		}
		flows = append(flows, lab.Flow{From: "client", Source: client, Protocol: lab.TCP, To: to})
	}
	got := map[netip.Addr]netip.AddrPort{}
	for i, o := range n.lab.Probe(n.t.Context(), flows) {
		if o.Kind != lab.Answered {
			n.t.Fatalf("%v from %v: %v", flows[i], flows[i].Source, o)
		}
		got[flows[i].Source] = netip.AddrPortFrom(n.addr(o.By, flows[i].Source), o.Port)
	}
	return got
}

// addr returns the address of a host in the family of another address.
func (n *hashNode) addr(host string, like netip.Addr) netip.Addr {
	n.t.Helper()
	h, err := n.lab.Host(host)
	if err != nil {
		n.t.Fatal(err)
	}
	if like.Is6() {
		return h.Addrs[1]
	}
	return h.Addrs[0]
}

// explains checks that explain names the endpoint of a client.
func (n *hashNode) explains(client netip.Addr, at netip.AddrPort) {
	n.t.Helper()
	to := "10.96.0.10:80"
	if client.Is6() {
		to = "[fd00:10:96::10]:80"
	}
	out, errs, code := n.asker.ask("explain", to, "--from", client.String())
	if want := fmt.Sprintf("%s, by the client's address (%s)", at, n.algorithm); code != 0 || !strings.Contains(out, want) {
		n.t.Errorf("explain %s --from %s does not say %q but (%d)\n%s%s", to, client, want, code, out, errs)
	}
}
