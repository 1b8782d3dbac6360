//go:build linux

package leftovers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/kernel/xtables"
)

func TestForeignRulesStay(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			netnstest.Enter(t)
			kind.load(t, foreignRules)
			want := kind.listing(t)
			kind.load(t, proxyRules)
			if kind.listing(t) == want {
				t.Fatal("the rules to be removed were not loaded")
			}
			remove(t, nil)
			if diff := cmp.Diff(want, kind.listing(t)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			remove(t, nil)
			if diff := cmp.Diff(want, kind.listing(t)); diff != "" {
				t.Errorf("rules after a second time (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllVariantsAreRemoved(t *testing.T) {
	netnstest.Enter(t)
	for _, kind := range kinds {
		kind.load(t, proxyRules)
	}
	remove(t, nil)
	for _, kind := range kinds {
		if got := kind.listing(t); strings.Contains(got, "KUBE-") {
			t.Errorf("%s still has\n%s", kind, got)
		}
	}
}

// Network plugins can be configured to mark packets by KUBE-MARK-MASQ.
func TestChainInForeignUseStays(t *testing.T) {
	const plugin = `*nat
:KUBE-MARK-MASQ - [0:0]
:CNI-SETMARK - [0:0]
-A CNI-SETMARK -p tcp -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
`
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			netnstest.Enter(t)
			kind.load(t, plugin)
			// The order of chains in a listing is that of their creation or of
			// their names, so kube-proxy comes second here.
			want := kind.listing(t)
			kind.load(t, strings.ReplaceAll(proxyRules, "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n", ""))
			kind.load(t, plugin[:strings.Index(plugin, ":CNI")]+"-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\nCOMMIT\n")
			remove(t, nil)
			if diff := cmp.Diff(want, withoutEmptyTables(kind.listing(t))); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeepMark(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			netnstest.Enter(t)
			kind.load(t, proxyRules)
			err := Remove(t.Context(), dataplane.RemoveOptions{Logger: logr.Discard(), KeepMark: true})
			if err != nil {
				t.Fatal(err)
			}
			got := kind.listing(t)
			if !strings.Contains(got, "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n") || strings.Contains(got, "KUBE-SERVICES") {
				t.Errorf("there is\n%s", got)
			}
			remove(t, nil)
			if got := kind.listing(t); strings.Contains(got, "KUBE-") {
				t.Errorf("there is still\n%s", got)
			}
		})
	}
}

func TestForeignUseStillUnlinksChain(t *testing.T) {
	const proxy = `*nat
:KUBE-SERVICES - [0:0]
:MINE - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -p udp -j RETURN
-A MINE -j KUBE-SERVICES
COMMIT
`
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			netnstest.Enter(t)
			kind.load(t, proxy)
			want := strings.Replace(kind.listing(t), "-A PREROUTING -j KUBE-SERVICES\n", "", 1)
			remove(t, nil)
			if diff := cmp.Diff(want, kind.listing(t)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutEmptyTables omits tables that loading rules created and that have no more
// rules.
func withoutEmptyTables(listing string) string {
	var out strings.Builder
	for table := range strings.SplitSeq(listing, "COMMIT\n") {
		if strings.Contains(table, "-A ") {
			out.WriteString(table + "COMMIT\n")
		}
	}
	return out.String()
}

func TestVeryManyChainsAreRemoved(t *testing.T) {
	netnstest.Enter(t)
	kind := kinds[0]
	var chains, rules strings.Builder
	const services = 1500
	for n := range services {
		hash := strings.NewReplacer("0", "A", "1", "B", "8", "C", "9", "D").Replace(fmt.Sprintf("%016d", n))
		fmt.Fprintf(&chains, ":KUBE-SVC-%s - [0:0]\n:KUBE-SEP-%s - [0:0]\n", hash, hash)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -p tcp -j KUBE-SVC-%s\n-A KUBE-SVC-%s -j KUBE-SEP-%s\n", hash, hash, hash)
	}
	kind.load(t, "*nat\n:KUBE-SERVICES - [0:0]\n"+chains.String()+"-A PREROUTING -j KUBE-SERVICES\n"+rules.String()+"COMMIT\n")
	remove(t, nil)
	if got := kind.listing(t); strings.Contains(got, "KUBE-") {
		t.Errorf("%d bytes of rules remain", len(got))
	}
}

func TestNothingLeftOver(t *testing.T) {
	netnstest.Enter(t)
	logger := funcr.New(func(_, line string) { t.Errorf("logged: %s", line) }, funcr.Options{})
	if err := Remove(t.Context(), dataplane.RemoveOptions{Logger: logger}); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "", "nft", "list", "ruleset"); got != "" {
		t.Errorf("ruleset:\n%s", got)
	}
	for _, family := range []*xtables.Family{xtables.IPv4, xtables.IPv6} {
		if got, err := family.Tables(); len(got) != 0 || err != nil {
			t.Errorf("tables of legacy %s: %v, %v", family.Command, got, err)
		}
	}
}

// What cannot be removed is reported, and keeps nothing else from being removed.
func TestFailureKeepsNothingElse(t *testing.T) {
	netnstest.Enter(t)
	legacy, modern := iptablesKind{"iptables", "legacy"}, iptablesKind{"iptables", "nft"}
	legacy.load(t, proxyRules)
	modern.load(t, proxyRules)
	command(t, proxyTables, "nft", "-f", "-")
	want := legacy.listing(t)
	path, broken := os.Getenv("PATH"), t.TempDir()
	for _, name := range []string{"iptables-legacy-save", "iptables-legacy-restore"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte("#!/bin/sh\necho broken >&2\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", broken+":"+path)
	err := Remove(t.Context(), dataplane.RemoveOptions{Logger: logr.Discard()})
	t.Setenv("PATH", path)
	if err == nil || !strings.Contains(err.Error(), "table nat of legacy iptables: iptables-legacy-save: broken") {
		t.Errorf("error: %v", err)
	}
	if diff := cmp.Diff(want, legacy.listing(t)); diff != "" {
		t.Errorf("legacy rules (-want +got):\n%s", diff)
	}
	if got := modern.listing(t) + command(t, "", "nft", "list", "tables"); strings.Contains(got, "KUBE-") || strings.Contains(got, "kube-proxy") {
		t.Errorf("the others were not removed:\n%s", got)
	}
}

const (
	proxyTables = `table ip kube-proxy { chain services { }; set s { type ipv4_addr; elements = { 192.0.2.1 }; }; }
table ip6 kube-proxy { chain services { type filter hook input priority 0; }; }
`
	otherTables = `table inet kube-proxy { chain mine { }; }
table ip kube-proxy2 { chain mine { }; }
`
)

func TestForeignTablesStay(t *testing.T) {
	d := running(t, netnstest.Enter(t), "nftables")
	command(t, otherTables, "nft", "-f", "-")
	want := command(t, "", "nft", "list", "ruleset")
	command(t, proxyTables, "nft", "-f", "-")
	remove(t, d)
	if diff := cmp.Diff(want, command(t, "", "nft", "list", "ruleset")); diff != "" {
		t.Errorf("ruleset (-want +got):\n%s", diff)
	}
}

// Named proxies serve beside others: what is theirs stays until nothing of any kube-proxy is to be left.
func TestTablesOfNamedProxies(t *testing.T) {
	ns := netnstest.Enter(t)
	const named = "table ip sluice.trial { }\ntable ip6 sluice-b.trial { }\ntable ip sluice-watch.a.b { }\ntable netdev sluice-direct.trial { }\n"
	command(t, named, "nft", "-f", "-")
	command(t, "table ip kube-proxy.old { }\ntable ip sluicegate.trial { }\n", "nft", "-f", "-")
	count := func() int { return strings.Count(command(t, "", "nft", "list", "tables"), " sluice") }
	remove(t, running(t, ns, "iptables-nft"))
	for _, o := range []dataplane.RemoveOptions{{OwnOnly: true}, {Instance: "other"}} {
		o.Logger = logr.Discard()
		if err := Remove(t.Context(), o); err != nil || count() != 5 {
			t.Errorf("%+v leaves %d of 5 tables, %v", o, count(), err)
		}
	}
	remove(t, nil)
	if got := command(t, "", "nft", "list", "tables"); count() != 1 || !strings.Contains(got, "kube-proxy.old") || !strings.Contains(got, "sluicegate.trial") {
		t.Errorf("left are\n%s", got)
	}
}

func TestTableOfOneFamilyIsRemoved(t *testing.T) {
	netnstest.Enter(t)
	command(t, "table ip6 kube-proxy { }", "nft", "-f", "-")
	remove(t, nil)
	if got := command(t, "", "nft", "list", "ruleset"); got != "" {
		t.Errorf("ruleset:\n%s", got)
	}
}

// upstreamLink is the link of upstream's ipvs mode.
const upstreamLink = "kube-ipvs0"

// ipvsRules are kube-proxy's in IPVS mode.
const ipvsRules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
-A FORWARD -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
-A OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER
-A KUBE-PROXY-FIREWALL -m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL
-A KUBE-SOURCE-RANGES-FIREWALL -j DROP
COMMIT
`

// ipvsSets are the sets of its rules, and one of kube-router's.
const ipvsSets = `create KUBE-CLUSTER-IP hash:ip,port family inet
create KUBE-LOAD-BALANCER-FW hash:ip,port family inet
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
create KUBE-SRC-ABCDEFGHIJKLMNOP hash:ip family inet
`

func TestIPVSModeIsRemoved(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			netnstest.Enter(t)
			addLinks(t, upstreamLink, "kube-bridge")
			command(t, ipvsSets, "ipset", "restore")
			kind := iptablesKind{"iptables", variant}
			kind.load(t, ipvsRules)
			remove(t, nil)
			if got := kind.listing(t); strings.Contains(got, "KUBE-") {
				t.Errorf("rules:\n%s", got)
			}
			if diff := cmp.Diff("KUBE-SRC-ABCDEFGHIJKLMNOP\n", command(t, "", "ipset", "list", "-name")); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"lo", "kube-bridge"}, links(t)); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
		})
	}
}

// What connections may depend on stays as well if a mode is running.
func TestRunningModeIsKept(t *testing.T) {
	tests := []struct {
		name, mode string
		want       []string
	}{
		{"nothing", "", nil},
		{"iptables-nft", "iptables-nft", []string{"nft KUBE-FORWARD", upstreamLink, "KUBE-LOOP-BACK"}},
		{"iptables-legacy", "iptables-legacy", []string{"legacy KUBE-FORWARD", upstreamLink, "KUBE-LOOP-BACK"}},
		{"nftables", "nftables", []string{upstreamLink, "KUBE-LOOP-BACK", "table ip sluice"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.Enter(t)
			for _, k := range kinds {
				k.load(t, "*filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\nCOMMIT\n")
			}
			kinds[0].load(t, "*filter\n:KUBE-IPVS-FILTER - [0:0]\n-A INPUT -j KUBE-IPVS-FILTER\nCOMMIT\n")
			addLinks(t, upstreamLink)
			command(t, "create KUBE-LOOP-BACK hash:ip,port,ip family inet\n", "ipset", "restore")
			command(t, proxyTables+"table ip sluice {}\ntable ip6 sluice-b {}\n", "nft", "-f", "-")
			remove(t, running(t, ns, tt.mode))
			ruleset := command(t, "", "nft", "list", "ruleset")
			all := ruleset + strings.Join(links(t), "\n") + command(t, "", "ipset", "list", "-name")
			var got []string
			for variant, rules := range map[string]string{"nft": ruleset, "legacy": command(t, "", "iptables-legacy-save")} {
				if strings.Contains(rules, "KUBE-FORWARD") {
					got = append(got, variant+" KUBE-FORWARD")
				}
			}
			for _, thing := range []string{"KUBE-IPVS-FILTER", upstreamLink, "KUBE-LOOP-BACK", "table ip kube-proxy", "table ip sluice"} {
				if strings.Contains(all, thing) {
					got = append(got, thing)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

// addLinks adds bridges, which every kernel has, where kube-proxy has a dummy.
func addLinks(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			t.Fatalf("add link %s: %v", name, err)
		}
	}
}

func links(t *testing.T) []string {
	t.Helper()
	list, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	return names
}
