//go:build linux

package lab_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// These tests are about ipvs mode only. They run in the guests of package vm.

// ipvsService has pod2 among its endpoints, with weight 0.
const ipvsService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports: [{name: p, protocol: TCP, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: p, protocol: TCP, port: 8080}]
endpoints: [{addresses: [POD1], conditions: {ready: true}}, {addresses: [REMOTE1], conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-b, namespace: default, labels: {kubernetes.io/service-name: web}, annotations: {sluice/weight: "0"}}
addressType: IPv4
ports: [{name: p, protocol: TCP, port: 8080}]
endpoints: [{addresses: [POD2], conditions: {ready: true}}]
`

// ipvsNode is a lab in ipvs mode.
type ipvsNode struct {
	*testing.T
	*lab.Lab
	dir   string
	proxy *lab.Proxy
}

func newIPVSNode(t *testing.T) *ipvsNode {
	requireSupport(t, "ipvs")
	n := &ipvsNode{T: t, Lab: lab.Start(t), dir: t.TempDir()}
	replacements := []string{}
	for _, host := range []string{"pod1", "pod2", "remote1"} {
		replacements = append(replacements, strings.ToUpper(host), hostAddr(t, n.Lab, host).String())
	}
	write(t, n.dir, "web.yaml", strings.NewReplacer(replacements...).Replace(ipvsService), 0)
	return n
}

func (n *ipvsNode) start(flags ...string) {
	n.Helper()
	n.proxy = startProxy(n.T, n.Lab, "ipvs", lab.ProxyOptions{Manifests: n.dir, Flags: append(flags, "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48")})
	settle(n.T, n.proxy, n.dir, 0)
}

// run runs a script on the node.
func (n *ipvsNode) run(script string) string {
	n.Helper()
	node, err := n.Host("node1")
	if err != nil {
		n.Fatal(err)
	}
	out, err := node.Run(n.Context(), lab.Command{Args: []string{"sh", "-ec", script}})
	if err != nil {
		n.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (n *ipvsNode) has(script, want string) {
	n.Helper()
	if got := n.run(script); !strings.Contains(got, want) {
		n.Errorf("%s prints\n%swant %q", script, got, want)
	}
}

// Each flag of ipvs mode makes a difference.
func TestIPVSSettings(t *testing.T) {
	n := newIPVSNode(t)
	// What upstream's kube-proxy left, of which one part is said to be another program's.
	n.run(`modprobe -a ip_vs ip_vs_rr dummy
ip link add kube-ipvs0 type dummy
for a in 203.0.113.9 198.51.100.9; do ip addr add $a/32 dev kube-ipvs0; ipvsadm -A -t $a:80 -s rr; done`)
	before := n.run("cat /proc/sys/net/ipv4/conf/all/arp_ignore /proc/sys/net/ipv4/conf/all/arp_announce")
	if before != "0\n0\n" {
		t.Errorf("arp_ignore and arp_announce are %q before the start", before)
	}
	n.start("--ipvs-scheduler=wlc", "--ipvs-strict-arp", "--ipvs-tcp-timeout=701s", "--ipvs-tcpfin-timeout=77s", "--ipvs-udp-timeout=66s",
		"--ipvs-exclude-cidrs=198.51.100.0/24", "--ipvs-drain-timeout=0", "--ipvs-sync-period=1s")
	n.has("ipvsadm -Sn", "-A -t 10.96.0.10:80 -s wlc\n")
	n.has("cat /proc/sys/net/ipv4/conf/all/arp_ignore /proc/sys/net/ipv4/conf/all/arp_announce", "1\n2\n")
	n.has("ipvsadm -L --timeout", "701 77 66")
	for _, name := range []string{"conntrack", "expire_nodest_conn", "expire_quiescent_template"} {
		n.has("cat /proc/sys/net/ipv4/vs/"+name, "1")
	}
	eventually(t, func() bool {
		saved := n.run("ipvsadm -Sn; ip addr show dev kube-ipvs0")
		return !strings.Contains(saved, "203.0.113.9") && strings.Contains(saved, "-A -t 198.51.100.9:80") && strings.Contains(saved, "198.51.100.9/32")
	})
	if text := n.run("ip addr show dev kube-ipvs0"); strings.Contains(text, "10.96.0.10") {
		t.Errorf("the address of a Service is on the link:\n%s", text)
	}
	// The rules, which nothing reports the loss of, are back within a second or two.
	n.run("ipvsadm -C; ip rule del pref 90 ipproto tcp")
	eventually(t, func() bool {
		return strings.Contains(n.run("ipvsadm -Sn"), "10.96.0.10:80") && strings.Contains(n.run("ip rule"), "ipproto tcp")
	})
	if o := n.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: ipvsAddress}); o.Kind != lab.Answered {
		t.Errorf("after that a connection is %v", o)
	}
}

var ipvsAddress = netip.MustParseAddrPort("10.96.0.10:80")

// The scheduler of the configuration file changes while the proxy runs.
func TestIPVSSchedulerIsFollowedLive(t *testing.T) {
	n := newIPVSNode(t)
	etc := t.TempDir()
	config := strings.Replace(liveConfig, "nftables", "ipvs", 1)
	write(t, etc, "config.yaml", config, 0)
	n.proxy = launch(t, n.Lab, lab.ProxyOptions{Manifests: n.dir, Flags: []string{"--config", filepath.Join(etc, "config.yaml")}})
	settle(t, n.proxy, n.dir, 0)
	n.has("ipvsadm -Sn", "-A -t 10.96.0.10:80 -s rr\n")
	held, err := n.Open(lab.Flow{From: "pod3", Protocol: lab.TCP, To: ipvsAddress})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	write(t, etc, "config.yaml", config+"ipvs: {scheduler: sh}\n", 0)
	eventually(t, func() bool {
		return strings.Contains(n.run("ipvsadm -Sn"), "-A -t 10.96.0.10:80 -s sh -b sh-fallback\n")
	})
	if _, err := held.Ask(); err != nil {
		t.Error(err)
	}
}

// Every scheduler distributes connections as it promises, and none to an endpoint of
// weight 0.
func TestIPVSSchedulers(t *testing.T) {
	n := newIPVSNode(t)
	for _, tt := range []struct {
		law        func(*testing.T, []string)
		schedulers []string
	}{
		{inTurn, []string{"rr", "wrr"}},
		// They count the connections that are open.
		{inTurn, []string{"lc", "wlc", "sed", "nq"}},
		{alwaysTheSame, []string{"sh", "dh", "fo"}},
		// The first hashes the port as well, the others leave an endpoint that is busy.
		{func(*testing.T, []string) {}, []string{"mh", "lblc", "lblcr", "ovf"}},
	} {
		for _, scheduler := range tt.schedulers {
			t.Run(scheduler, func(t *testing.T) {
				n.start("--ipvs-scheduler=" + scheduler)
				defer n.proxy.Stop()
				n.has("ipvsadm -Sn", "-A -t 10.96.0.10:80 -s "+scheduler)
				var by []string
				connections := 6
				if scheduler == "ovf" { // an endpoint takes as many as its weight
					connections = 2
				}
				for range connections {
					s, err := n.Open(lab.Flow{From: "client", Protocol: lab.TCP, To: ipvsAddress})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					answer, err := s.Ask()
					if err != nil {
						t.Fatal(err)
					}
					by = append(by, answer.By)
					if answer.By == "pod2" {
						t.Error("the endpoint with weight 0 got a connection")
					}
				}
				tt.law(t, by)
			})
		}
	}
}

func inTurn(t *testing.T, by []string) {
	for i := 2; i < len(by); i++ {
		if by[i] == by[i-1] || by[i] != by[i-2] {
			t.Errorf("not in turn: %v", by)
		}
	}
}

func alwaysTheSame(t *testing.T, by []string) {
	for _, name := range by {
		if name != by[0] {
			t.Errorf("not always the same: %v", by)
		}
	}
}

// A node without IPVS keeps the rules that it has.
func TestIPVSIsMissing(t *testing.T) {
	if scenario.Modes["ipvs"].Supported(t.Context()) == nil {
		t.Skip("this kernel has IPVS")
	}
	l := lab.Start(t)
	p := launch(t, l, lab.ProxyOptions{Manifests: t.TempDir(), Flags: []string{"--proxy-mode=ipvs"}})
	testkit.Until(t, func() bool { return strings.Contains(p.Log().String(), "modprobe ip_vs") })
	for _, part := range []string{"the kernel has no IPVS", "mode: nftables"} {
		if !strings.Contains(p.Log().String(), part) {
			t.Errorf("the log lacks %q:\n%s", part, p.Log())
		}
	}
}
