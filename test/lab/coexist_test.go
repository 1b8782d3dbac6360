//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/test/lab"
)

// How nftables mode coexists with other users of iptables on the node.

// bothFamilies has a node port with an endpoint on each node.
var bothFamilies = `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {addresses: [{type: InternalIP, address: 192.0.2.10}, {type: InternalIP, address: "2001:db8::10"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.2
  clusterIPs: [10.96.0.2, "fd00:10:96::2"]
  ipFamilies: [IPv4, IPv6]
  ports: [{port: 80, nodePort: 30080}]
` + lab.EndpointSlice("IPv4", "web", "", "pod1") + lab.EndpointSlice("IPv6", "web", "", "pod1")

// side is one IP family of the lab.
type side struct {
	program    string
	node       netip.Addr // node1
	remotePod  string     // as a target of DNAT, without the port
	nodePrefix string
}

var sides = []side{
	{"iptables", netip.MustParseAddr("192.0.2.10"), "10.244.2.1", "192.0.2.10/32"},
	{"ip6tables", netip.MustParseAddr("2001:db8::10"), "[fd00:10:244:2::1]", "2001:db8::10/128"},
}

// beside runs a test of nftables mode on a node that uses a variant of iptables.
func beside(t *testing.T, test func(*iptablesLab)) {
	inEachVariant(t, func(l *iptablesLab) {
		l.mode = "nftables"
		write(l.t, l.dir, "both.yaml", bothFamilies, 0)
		test(l)
	})
}

// iptables runs an iptables command of a family.
func (l *iptablesLab) iptables(s side, args string) {
	l.t.Helper()
	l.run("", strings.Fields(s.program+"-"+l.variant+" -w 10 "+args)...)
}

// fromOutside connects to a port of the node.
func (l *iptablesLab) fromOutside(s side, port uint16, timeout time.Duration) lab.Outcome {
	return l.Connect(l.t.Context(), lab.Flow{
		From: "client", Protocol: lab.TCP, To: netip.AddrPortFrom(s.node, port), Timeout: timeout,
	})
}

func TestPolicyDropIsReported(t *testing.T) {
	t.Parallel()
	beside(t, func(l *iptablesLab) {
		for _, s := range sides {
			l.iptables(s, "-P FORWARD DROP")
		}
		a, socket := newAsker(l.t, l.Lab)
		l.start(lab.ProxyOptions{Flags: []string{socket, "--iptables-sync-period=1s"}})
		settle(l.t, l.proxy, l.dir, 0)
		remedy := regexp.MustCompile(`run (ip6?tables-\w+ -I FORWARD [^,;]*)`)
		var commands []string
		eventually(l.t, func() bool {
			out, _, _ := a.ask("status")
			commands = nil
			for _, m := range remedy.FindAllStringSubmatch(out, -1) {
				commands = append(commands, m[1])
			}
			return len(commands) == len(sides) && strings.Contains(out, "WARNING")
		})
		l.logs(`E\d.*Warning: .*FORWARD: its policy is DROP`)
		for i, s := range sides {
			if o := l.fromOutside(s, 30080, lab.ShortTimeout); o.Kind == lab.Answered {
				l.t.Fatalf("%s: %v, though the policy is DROP: the warning is wrong", s.program, o)
			}
			l.run("", strings.Fields(commands[i])...)
		}
		for _, s := range sides {
			if o := l.fromOutside(s, 30080, lab.DefaultTimeout); o.Kind != lab.Answered {
				l.t.Errorf("%s: %v, though the remedy was applied", s.program, o)
			}
		}
		eventually(l.t, func() bool { out, _, _ := a.ask("status"); return !strings.Contains(out, "FORWARD") })
	})
}

// A network plugin forwards a port of the node to a pod, and leads the packets
// through KUBE-MARK-MASQ so that the answers come back this way.
func TestPluginPortsAreMasqueraded(t *testing.T) {
	t.Parallel()
	beside(t, func(l *iptablesLab) {
		for _, s := range sides {
			l.iptables(s, "-t nat -N KUBE-KUBELET-CANARY") // as kubelet does
		}
		l.start(lab.ProxyOptions{})
		settle(l.t, l.proxy, l.dir, 0)
		for _, s := range sides {
			eventually(l.t, func() bool { return strings.Contains(l.nat(s), "-A KUBE-MARK-MASQ -j MARK") })
			l.iptables(s, "-t nat -N CNI-DN")
			l.iptables(s, "-t nat -A CNI-DN -j KUBE-MARK-MASQ")
			l.iptables(s, fmt.Sprintf("-t nat -A CNI-DN -p tcp -j DNAT --to-destination %s:8080", s.remotePod))
			l.iptables(s, "-t nat -A PREROUTING -p tcp -d "+s.nodePrefix+" --dport 8888 -j CNI-DN")
		}
		l.expectMasqueraded("while the proxy runs")
		if err := l.proxy.Kill(); err != nil {
			l.t.Fatal(err)
		}
		l.expectMasqueraded("without a proxy")
		for _, s := range sides { // what is left over is removed, but not the chain
			l.iptables(s, "-t nat -N KUBE-SERVICES")
			l.iptables(s, "-t nat -A KUBE-SERVICES -j KUBE-MARK-MASQ")
			l.iptables(s, "-t nat -A PREROUTING -j KUBE-SERVICES")
		}
		l.start(lab.ProxyOptions{})
		for _, s := range sides {
			eventually(l.t, func() bool { return !strings.Contains(l.nat(s), "KUBE-SERVICES") })
		}
		l.expectMasqueraded("with the next proxy")
		l.expectCleanup()
	})
}

func (l *iptablesLab) nat(s side) string {
	l.t.Helper()
	return l.run("", s.program+"-"+l.variant+"-save", "-t", "nat")
}

// expectMasqueraded connects to the plugin's port: the pod must see the node.
func (l *iptablesLab) expectMasqueraded(when string) {
	l.t.Helper()
	for _, s := range sides {
		if o := l.fromOutside(s, 8888, lab.DefaultTimeout); o.Kind != lab.Answered || o.By != "remote1" || o.Source.Addr() != s.node {
			l.t.Errorf("%s, %s: %v, want an answer of remote1, which saw %v", when, s.program, o, s.node)
		}
	}
}

// expectCleanup removes the chain only if no plugin uses it.
func (l *iptablesLab) expectCleanup() {
	l.t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.proxy.Stop(); err != nil {
		l.t.Fatal(err)
	}
	l.run("", binary, "--cleanup")
	for _, s := range sides {
		if nat := l.nat(s); !strings.Contains(nat, ":KUBE-MARK-MASQ") {
			l.t.Errorf("the chain that a plugin uses is gone:\n%s", nat)
		}
		l.iptables(s, "-t nat -F CNI-DN")
	}
	l.run("", binary, "--cleanup")
	for _, s := range sides {
		if nat := l.nat(s); strings.Contains(nat, "KUBE-MARK-MASQ") || !strings.Contains(nat, "KUBE-KUBELET-CANARY") {
			l.t.Errorf("after the plugin is gone:\n%s", nat)
		}
	}
}

// A foreign rule leads into a chain that upstream's iptables mode left:
// the chain stays, and that is reported.
func TestRuleIntoStaleChainIsReported(t *testing.T) {
	t.Parallel()
	beside(t, func(l *iptablesLab) {
		for _, s := range sides {
			l.run("*filter\n:KUBE-FORWARD - [0:0]\n:MINE - [0:0]\n-A FORWARD -j KUBE-FORWARD\n-A FORWARD -j MINE\n"+
				"-A MINE -j KUBE-FORWARD\n-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\nCOMMIT\n",
				s.program+"-"+l.variant+"-restore", "--noflush", "-w", "10")
		}
		a, socket := newAsker(l.t, l.Lab)
		l.start(lab.ProxyOptions{Flags: []string{socket}})
		for _, s := range sides {
			want := fmt.Sprintf("%s-%s: table filter, chain MINE: a rule in it jumps to KUBE-FORWARD", s.program, l.variant)
			eventually(l.t, func() bool {
				out, _, _ := a.ask("status")
				return strings.Contains(out, want) && strings.Contains(out, "grep KUBE-FORWARD")
			})
			l.logs(want)
		}
	})
}
