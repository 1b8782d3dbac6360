//go:build linux

package leftovers

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/dataplane/iptables"
	"sluice/internal/dataplane/nftables"
	driver "sluice/internal/kernel/iptables"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/plan"
)

// command runs a command in the namespace and returns its output.
var command = netnstest.Run

// remove removes what is left over while a dataplane is running, nil for none.
func remove(t *testing.T, running dataplane.Dataplane) {
	t.Helper()
	if err := Remove(t.Context(), dataplane.RemoveOptions{Logger: testr.New(t), Running: running}); err != nil {
		t.Fatal(err)
	}
}

// running opens a dataplane of the mode in the namespace, and has it write rules;
// nil for none.
func running(t *testing.T, ns *netnstest.Namespace, mode string) dataplane.Dataplane {
	t.Helper()
	var d dataplane.Dataplane
	var err error
	switch mode {
	case "nftables":
		d, err = nftables.New(nftables.Options{Logger: logr.Discard(), NetNS: ns.FD()})
	case "iptables-nft":
		d = iptables.New(iptables.Options{Logger: logr.Discard(), NetNS: ns.FD(), Variant: driver.NFT})
	case "iptables-legacy":
		d = iptables.New(iptables.Options{Logger: logr.Discard(), NetNS: ns.FD(), Variant: driver.Legacy})
	default:
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	dataplanetest.OK(t, d.Reconcile(t.Context(), &plan.Desired{Settings: dataplanetest.Settings()}))
	return d
}

// iptablesKind is a family and variant of iptables.
type iptablesKind struct {
	command, variant string
}

var kinds = []iptablesKind{
	{"iptables", "nft"}, {"ip6tables", "nft"},
	{"iptables", "legacy"}, {"ip6tables", "legacy"},
}

func (i iptablesKind) String() string { return i.command + "-" + i.variant }

// load adds rules.
func (i iptablesKind) load(t *testing.T, rules string) {
	t.Helper()
	args := []string{"--noflush"}
	if i.variant == "legacy" { // its lock is shared by the machine
		args = append(args, "--wait=60")
	}
	command(t, i.rules(rules), i.String()+"-restore", args...)
}

// rules fills in the addresses of the family.
func (i iptablesKind) rules(text string) string {
	cluster, pod := "10.96.0.10", "10.1.0.5"
	if i.command == "ip6tables" {
		cluster, pod = "fd00:96::a", "fd00:1::5"
	}
	return strings.NewReplacer("$CLUSTER", cluster, "$POD", pod).Replace(text)
}

var volatile = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`)

// listing lists all tables, without times and counters.
func (i iptablesKind) listing(t *testing.T) string {
	t.Helper()
	return volatile.ReplaceAllString(command(t, "", i.String()+"-save"), "")
}

// foreignRules are those of kubelet, a container engine, a network plugin, kube-router
// and an administrator.
const foreignRules = `*mangle
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-IPTABLES-HINT - [0:0]
-A PREROUTING -p tcp -j MARK --set-xmark 0x1/0x1
COMMIT
*nat
:DOCKER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:KUBE-SVC-MINE - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A PREROUTING -j CNI-HOSTPORT-DNAT
-A OUTPUT -m comment --comment "not a jump: -j KUBE-SERVICES"
-A POSTROUTING -p tcp -m comment --comment "mine, says -j KUBE-POSTROUTING" -j MASQUERADE
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 8080 -j DNAT --to-destination $POD
-A KUBE-SVC-MINE -j RETURN
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]
-A INPUT -j KUBE-ROUTER-INPUT
-A INPUT -j KUBE-FIREWALL
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -j KUBE-POD-FW-ABCDEFGHIJKLMNOP
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A KUBE-POD-FW-ABCDEFGHIJKLMNOP -d $POD -j ACCEPT
COMMIT
`

// proxyRules are kube-proxy's in iptables mode for one Service with one endpoint, a node
// port and a load balancer.
const proxyRules = `*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SVL-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-EXT-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-FW-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-ABCDEFGHIJKL2345 - [0:0]
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -d $CLUSTER -p tcp -m comment --comment "default/web cluster IP" -m tcp --dport 80 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-MARK-MASQ
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-SVL-NPX46M4PTMTKRN6Y
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-FW-NPX46M4PTMTKRN6Y -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-SVL-NPX46M4PTMTKRN6Y -j KUBE-SEP-ABCDEFGHIJKL2345
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-ABCDEFGHIJKL2345
-A KUBE-SEP-ABCDEFGHIJKL2345 -s $POD -j KUBE-MARK-MASQ
-A KUBE-SEP-ABCDEFGHIJKL2345 -p tcp -m tcp -j DNAT --to-destination $POD
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-PROXY-CANARY - [0:0]
-I INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
-I INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-I INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-I FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-SERVICES -d $CLUSTER -p tcp -m tcp --dport 81 -j REJECT
COMMIT
`
