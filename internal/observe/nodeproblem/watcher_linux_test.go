package nodeproblem

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// site is a node with a Service of both families, in a network namespace of its own.
type site struct {
	*testing.T
	watcher *Watcher
	paths   map[Path]struct{}
}

// newSite returns a node. Endpoints are on another node, unless they are the node's own.
func newSite(t *testing.T, cfg plan.Config, own bool) *site {
	t.Helper()
	netnstest.Enter(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	s := &site{T: t}
	s.set("ipv4/ip_forward", "1")
	s.set("ipv6/conf/all/forwarding", "1")
	s.run(`link add eth0 up type veth peer name eth1
link set eth1 up
addr add 192.0.2.10/24 dev eth0
addr add 2001:db8::10/64 dev eth0 nodad
route add default via 192.0.2.1
route add default via 2001:db8::1
`, "ip", "-force", "-batch", "-")
	desired, isOwn := planned(cfg, own)
	s.paths = pathsIn(desired, isOwn)
	s.watcher = NewWatcher(Options{
		Logger: logr.Discard(), Ours: func(chain string) bool { return strings.HasPrefix(chain, "KUBE-") },
		Plan: func(read func(*plan.Desired, uint64, func(netip.Addr) bool)) { read(desired, 1, isOwn) },
	})
	t.Cleanup(func() { s.watcher.Close() })
	return s
}

// planned returns the plan for a Service with node ports.
func planned(cfg plan.Config, own bool) (*plan.Desired, func(netip.Addr) bool) {
	cfg.NodeName, cfg.MasqueradeBit = "node1", 14
	cfg.DetectLocal, cfg.ClusterCIDRs = plan.DetectClusterCIDR, testkit.Prefixes("10.244.0.0/16", "fd00:10:244::/48")
	node := testkit.Addrs("192.0.2.10", "2001:db8::10")
	web := model.Name{Namespace: "default", Name: "web"}
	state := model.NewState()
	state.Apply(&model.Dirty{}, model.SetHostIPs{IPs: node}, model.SetService{Service: &model.Service{
		Name: web, ClusterIPs: testkit.Addrs("10.96.0.1", "fd00:10:96::1"),
		Ports: []model.ServicePort{{Port: 80, NodePort: 30080, Protocol: model.TCP}},
	}})
	endpoints := testkit.Addrs("10.244.2.1", "fd00:10:244:2::1")
	if own {
		endpoints = node
	}
	for i, f := range model.Families {
		state.Apply(&model.Dirty{}, model.SetSlice{Slice: &model.Slice{
			Name: model.Name{Namespace: "default", Name: fmt.Sprint("web-", i)}, Service: "web", Family: f,
			Ports:     []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{{Addr: endpoints[i], Node: "node2", Conditions: model.Ready | model.Serving}},
		}})
	}
	planner := plan.New(cfg)
	planner.Update(state, &model.Dirty{All: true})
	return planner.Desired(), OwnAddresses(state)
}

// set changes a setting of the kernel.
func (s *site) set(name, value string) {
	s.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		s.Fatal(err)
	}
}

func (s *site) run(input, program string, args ...string) {
	s.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v: %v: %s\n%s", cmd, err, out, input)
	}
}

// look returns whose connections are blocked for certain, such as "IPv4 pod", and what is
// advised.
func (s *site) look() (blocked string, rules []model.Problem) {
	s.Helper()
	s.watcher.last.cost = 0 // do not wait
	s.watcher.Look(s.Context())
	if err := s.watcher.Err(); err != nil {
		s.Fatal(err)
	}
	all := map[string]struct{}{}
	for p := range s.paths {
		if s.watcher.Blocked(p) != nil {
			all[p.Family.String()+" "+p.From.String()] = struct{}{}
		}
	}
	_, rules = s.watcher.Advisories()
	return strings.Join(slices.Sorted(maps.Keys(all)), ", "), rules
}

// expect fails unless those connections are blocked, and these chains are advised about.
func (s *site) expect(blocked string, chains ...string) {
	s.Helper()
	got, rules := s.look()
	var advised []string
	for _, p := range rules {
		advised = append(advised, p.Kind+" "+p.Field)
		if certain := strings.Contains(p.Reason, "no rule in it accepts them"); certain != (got != "") {
			s.Errorf("blocked are %q, and the advisory is %v", got, p)
		}
	}
	if got != blocked || !slices.Equal(advised, chains) {
		s.Errorf("blocked are %q, want %q; advisories %q, want %q", got, blocked, advised, chains)
	}
}

// mend runs the command that each advisory gives as a remedy.
func (s *site) mend() {
	s.Helper()
	_, rules := s.look()
	for _, p := range rules {
		command := regexp.MustCompile(`^run ([^;]*?), and`).FindStringSubmatch(p.Remedy)
		if command == nil {
			s.Fatalf("there is no command in %q", p.Remedy)
		}
		s.run("", "sh", "-c", command[1])
	}
	s.expect("")
}

const (
	forwarded = "IPv4 outside, IPv4 pod, IPv6 outside, IPv6 pod"
	everybody = "IPv4 node, IPv4 outside, IPv4 pod, IPv6 node, IPv6 outside, IPv6 pod"
)

// Chains of nftables that drop connections to Services are found, and no others.
func TestChainsOfNFTables(t *testing.T) {
	forward := func(rules string) string {
		return "table inet fw { chain forward { type filter hook forward priority 0; policy drop; " + rules + "\n}\n}\n"
	}
	open := func(rules string) string { return strings.Replace(forward(rules), "policy drop", "policy accept", 1) }
	// withOther has a chain that is led to, and third may be another.
	withOther := func(policy, rules, other string) string {
		return "table inet fw { chain third { }; chain other { " + other + "\n}; }\n" + strings.Replace(forward(rules), "policy drop", "policy "+policy, 1)
	}
	const inForward = "nft table inet fw, chain forward"
	for _, tt := range []struct {
		name, ruleset string
		blocked       string
		advised       string
	}{
		{name: "none"},
		{"policy accept", open(""), "", ""},
		{"Debian's policy drop", forward(""), forwarded, inForward},
		{"of IPv4", "table ip fw { chain f { type filter hook forward priority 10; policy drop; }; }", "IPv4 outside, IPv4 pod", "nft table ip fw, chain f"},
		{"of IPv6", "table ip6 fw { chain f { type filter hook forward priority -10; policy drop; }; }", "IPv6 outside, IPv6 pod", "nft table ip6 fw, chain f"},
		{"named as iptables does", "table ip filter { chain forward { type filter hook forward priority 0; policy drop; }; }",
			"IPv4 outside, IPv4 pod", "nft table ip filter, chain forward"},
		{"translated connections are accepted", forward("ct status dnat accept"), "", ""},
		{"everything is accepted", forward("counter accept"), "", ""},
		{"established connections are accepted", forward("ct state established,related accept"), forwarded, inForward},
		{"established connections are accepted, by a set", forward("ct state { established, related } accept"), forwarded, inForward},
		{"established connections are accepted, by a map", forward("ct state vmap { established : accept, related : accept, invalid : drop }"), forwarded, inForward},
		{"new connections too, by a map", forward("ct state vmap { established : accept, related : accept, new : accept }"), "", ""},
		{"new connections too", forward("ct state new,established,related accept"), "", ""},
		{"new connections alone", forward("ct state new accept"), forwarded, inForward},
		{"all but new ones", forward("ct state != new accept"), forwarded, inForward},
		{"a rule drops everything", open("counter drop"), forwarded, inForward},
		{"a rule rejects everything", open("log reject"), forwarded, inForward},
		{"a rule drops some packets", open("ip saddr 192.0.2.0/24 drop; tcp dport 22 reject; ct state invalid drop"), "", ""},
		{"a rule drops what is translated", open("ct status dnat drop"), forwarded, inForward},
		{"some are accepted before", forward("meta l4proto tcp accept"), "", inForward},
		{"some are accepted before a rule drops everything", open("iifname eth0 accept; drop"), "", inForward},
		{"some of one family are", forward("ip daddr 10.244.0.0/16 accept"), "IPv6 outside, IPv6 pod", inForward},
		{"one family is accepted", forward("meta nfproto ipv4 accept"), "IPv6 outside, IPv6 pod", inForward},
		{"another chain accepts nothing", withOther("drop", "jump other", ""), forwarded, inForward},
		{"another chain accepts some", withOther("drop", "jump other", "iifname eth0 accept"), "", inForward},
		{"another chain accepts some that cannot come", withOther("drop", "jump other", "iifname nothere accept"), forwarded, inForward},
		{"another chain accepts all", withOther("drop", "jump other", "accept"), "", ""},
		{"another chain drops all", withOther("accept", "jump other; accept", "ct state established return; reject"), forwarded, inForward},
		{"another chain is left before it drops", withOther("accept", "jump other", "return; drop"), "", ""},
		{"another chain may be left before it drops", withOther("accept", "jump other; accept", "iifname eth0 return; drop"), "", ""},
		{"another chain may be left before it accepts", withOther("drop", "jump other", "iifname eth0 return; accept"), "", inForward},
		{"another chain is gone to", withOther("accept", "goto other; drop", ""), "", ""},
		{"another chain may be gone to", withOther("accept", "iifname eth0 goto other; drop", ""), "", inForward},
		{"some go to another chain, which drops", withOther("accept", "iifname eth0 jump other", "drop"), "", ""},
		{"some go to another chain, which may accept", withOther("drop", "iifname eth0 jump other", "tcp dport 22 accept"), "", inForward},
		{"some go to another chain, which only drops", withOther("drop", "iifname eth0 jump other", "tcp dport 22 drop"), forwarded, inForward},
		{"chains behind chains", withOther("drop", "jump other", "jump third") + "table inet fw { chain third { ct status dnat accept; }; }", "", ""},
		{"rules leave the chain", forward("tcp dport 80 return; return; accept"), forwarded, inForward},
		{"rules leave a chain with policy accept", open("ip daddr 10.244.0.0/16 return; drop"), "IPv6 outside, IPv6 pod", inForward},
		{"states are part of a key", forward("ct state . ip saddr { new . 192.0.2.1 } accept"), "IPv6 outside, IPv6 pod", inForward},
		{"loopback does not count", forward("iif lo accept; iifname \"lo\" accept; oifname != \"lo\" drop"), forwarded, inForward},
		{"ICMP does not count", forward("meta l4proto ipv6-icmp accept; meta l4proto icmp accept; icmpv6 type nd-neighbor-solicit accept"), forwarded, inForward},
		{"dormant", "table inet fw { flags dormant; chain forward { type filter hook forward priority 0; policy drop; }; }", "", ""},
		{"at output", "table inet fw { chain out { type filter hook output priority 0; policy drop; oif lo accept; ct state established accept; }; }",
			"IPv4 node, IPv6 node", "nft table inet fw, chain out"},
		{"at output before translation", "table inet fw { chain out { type filter hook output priority -150; policy drop; ct status dnat accept; }; }",
			"", "nft table inet fw, chain out"},
		{"replies to the node", "table inet fw { chain in { type filter hook input priority 0; policy drop; iif lo accept; }; }",
			"IPv4 node, IPv6 node", "nft table inet fw, chain in"},
		{"a server", `table inet filter {
			chain input { type filter hook input priority filter; policy drop; ct state invalid drop; ct state { established, related } accept; iif lo accept; tcp dport 22 accept; counter reject; };
			chain forward { type filter hook forward priority filter; policy drop; };
			chain output { type filter hook output priority filter; policy accept; }; }`, forwarded, "nft table inet filter, chain forward"},
		{"firewalld", `table inet firewalld {
			chain filter_INPUT { type filter hook input priority filter + 10; policy accept; ct state { established, related } accept; ct status dnat accept;
				iifname "lo" accept; ct state invalid drop; jump zones; reject with icmpx admin-prohibited; };
			chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept; ct state { established, related } accept; ct status dnat accept;
				iifname "lo" accept; ct state invalid drop; jump zones; reject with icmpx admin-prohibited; };
			chain filter_OUTPUT { type filter hook output priority filter + 10; policy accept; ct state { established, related } accept; oifname "lo" accept; jump zones; };
			chain zones { }; }`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, plan.Config{}, false)
			s.run(tt.ruleset, "nft", "-f", "-")
			var advised []string
			if tt.advised != "" {
				advised = []string{tt.advised}
			}
			s.expect(tt.blocked, advised...)
			if tt.advised != "" {
				s.mend()
			}
		})
	}
}

// What a program decides to which a rule passes packets is not known. Not every kernel has such
// rules.
func TestQueue(t *testing.T) {
	rules, err := (&nftTable{reader: &reader{}}).rules(t.Context(), []nft.Expr{{Kind: "queue"}})
	if err != nil {
		t.Fatal(err)
	}
	c := chain{drops: true, rules: rules}
	if f, certain := c.fate(packet{state: stateNew}); f != policyDrops || certain {
		t.Errorf("fate %v, certain: %v", f, certain)
	}
}

// Endpoints that have the node's own address, and connections that the proxy relays, take other
// hooks.
func TestOtherPaths(t *testing.T) {
	table := func(hook, rules string) string {
		return fmt.Sprintf("table inet fw { chain c { type filter hook %s priority 0; policy drop; %s\n}\n}\n", hook, rules)
	}
	for _, tt := range []struct {
		name, ruleset string
		cfg           plan.Config
		own           bool
		blocked       string
	}{
		{"own endpoints, forward", table("forward", ""), plan.Config{}, true, ""},
		{"own endpoints, input", table("input", "iif lo accept;"), plan.Config{}, true, forwarded},
		{"own endpoints, input that may accept them", table("input", "tcp dport 8080 accept;"), plan.Config{}, true, ""},
		{"own endpoints, output", table("output", ""), plan.Config{}, true, forwarded},
		{"relayed, forward", table("forward", ""), plan.Config{ProxyConnects: true}, false, ""},
		{"relayed, input", table("input", "ct state established accept;"), plan.Config{ProxyConnects: true}, false, forwarded},
		{"relayed, input that accepts translated connections", table("input", "ct status dnat accept; ct state established accept;"), plan.Config{ProxyConnects: true}, false, ""},
		{"relayed, output", table("output", "ct state established accept;"), plan.Config{ProxyConnects: true}, false, everybody},
		{"IPVS, forward", table("forward", ""), plan.Config{Balancer: plan.Balancer{Name: "IPVS", Default: "rr"}}, false, forwarded},
		{"IPVS, forward that accepts replies", table("forward", "ct state established accept;"), plan.Config{Balancer: plan.Balancer{Name: "IPVS", Default: "rr"}}, false, ""},
		{"IPVS, input", table("input", "ct state established accept;"), plan.Config{Balancer: plan.Balancer{Name: "IPVS", Default: "rr"}}, false, forwarded},
		{"IPVS, input that may accept them", table("input", "ct state established accept; ct status dnat accept;"), plan.Config{Balancer: plan.Balancer{Name: "IPVS", Default: "rr"}}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, tt.cfg, tt.own)
			s.run(tt.ruleset, "nft", "-f", "-")
			if got, rules := s.look(); got != tt.blocked {
				t.Errorf("blocked are %q, want %q: %v", got, tt.blocked, rules)
			}
			s.mend()
		})
	}
}

// inEachVariant runs a test with both variants of iptables.
func inEachVariant(t *testing.T, test func(s *site, variant string, iptables func(args string))) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			s := newSite(t, plan.Config{}, false)
			test(s, variant, func(args string) {
				t.Helper()
				for _, program := range []string{"iptables-" + variant, "ip6tables-" + variant} {
					s.run("", program, strings.Fields("-w "+args)...)
				}
			})
		})
	}
}

func TestChainsOfIPTables(t *testing.T) {
	inEachVariant(t, func(s *site, variant string, iptables func(string)) {
		both := func(what string) []string {
			return []string{"iptables-" + variant + " table " + what, "ip6tables-" + variant + " table " + what}
		}
		advised := both("filter, chain FORWARD")
		iptables("-P FORWARD ACCEPT")
		s.expect("")
		iptables("-P FORWARD DROP")
		s.expect(forwarded, advised...)
		for _, helpless := range []string{
			"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-m conntrack ! --ctstate DNAT -j ACCEPT", "-m conntrack --ctstate DNAT -j DROP",
			"-m comment --comment nothing", "-j LOG", "-m conntrack --ctstate INVALID -j DROP", "-j MARK --set-mark 1",
		} {
			iptables("-I FORWARD " + helpless)
			s.expect(forwarded, advised...)
			iptables("-D FORWARD " + helpless)
		}
		for _, doubtful := range []string{"-p tcp -j ACCEPT", "-i eth0 -j ACCEPT", "-m conntrack --ctstate DNAT --ctproto tcp -j ACCEPT", "-m mark --mark 1 -j ACCEPT", "-j NFQUEUE"} {
			iptables("-A FORWARD " + doubtful)
			s.expect("", advised...)
			iptables("-D FORWARD " + doubtful)
		}
		for _, good := range []string{"-m comment --comment all -j ACCEPT", "-m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT", "-m conntrack --ctstate DNAT -j ACCEPT"} {
			iptables("-A FORWARD " + good)
			s.expect("")
			iptables("-D FORWARD " + good)
		}
		s.mend()
		iptables("-F FORWARD")
		iptables("-P FORWARD ACCEPT")
		iptables("-A FORWARD -j REJECT")
		s.expect(forwarded, advised...)
		s.mend()
		iptables("-F FORWARD")
		iptables("-t mangle -A FORWARD -j DROP")
		s.expect(forwarded, both("mangle, chain FORWARD")...)
		s.mend()
		iptables("-t mangle -F FORWARD")
		iptables("-A OUTPUT -j RETURN")
		iptables("-P OUTPUT DROP")
		s.expect("IPv4 node, IPv6 node", both("filter, chain OUTPUT")...)
		s.mend()
	})
}

// What iptables mode has in FORWARD lets pass what it masquerades, and replies.
func TestForwardChainOfIPTablesMode(t *testing.T) {
	inEachVariant(t, func(s *site, variant string, iptables func(string)) {
		s.watcher.reader.accepts = true
		advised := []string{"iptables-" + variant + " table filter, chain FORWARD", "ip6tables-" + variant + " table filter, chain FORWARD"}
		iptables("-P FORWARD DROP")
		iptables("-N KUBE-FORWARD")
		iptables("-N KUBE-UNTRANSLATED")
		iptables("-A FORWARD -j KUBE-UNTRANSLATED")
		s.expect(forwarded, advised...)
		iptables("-A FORWARD -j KUBE-FORWARD")
		s.expect("IPv4 pod, IPv6 pod", advised...)
		iptables("-I FORWARD -j DROP")
		s.expect(forwarded, advised...)
		iptables("-D FORWARD -j DROP")
		s.mend()
	})
}

// The rules of well-known programs block what they really do.
func TestWellKnownPrograms(t *testing.T) {
	const docker = `*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
:DOCKER -
:DOCKER-USER -
:DOCKER-ISOLATION-STAGE-1 -
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
`
	for name, tt := range map[string]struct{ link, rules, blocked string }{
		"Docker with containers":    {"docker0", docker, ""},
		"Docker without containers": {"", docker, forwarded},
		"ufw": {"", `*filter
:INPUT DROP
:FORWARD DROP
:OUTPUT ACCEPT
:ufw-before-forward -
:ufw-before-input -
:ufw-before-output -
:ufw-user-forward -
:ufw-reject-forward -
-A INPUT -j ufw-before-input
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-reject-forward
-A OUTPUT -j ufw-before-output
-A ufw-before-input -i lo -j ACCEPT
-A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p ICMP -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
COMMIT
`, forwarded},
		"ufw that lets pods pass": {"", `*filter
:INPUT DROP
:FORWARD DROP
:OUTPUT ACCEPT
:ufw-before-input -
:ufw-user-forward -
-A INPUT -j ufw-before-input
-A FORWARD -j ufw-user-forward
-A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-user-forward -p tcp -m multiport --dports 22,8000:8100 -j ACCEPT
-A ufw-user-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`, ""},
		"Calico": {"", `*filter
:INPUT ACCEPT
:FORWARD ACCEPT
:OUTPUT ACCEPT
:cali-FORWARD -
:cali-INPUT -
:cali-OUTPUT -
:cali-from-wl-dispatch -
:cali-fw-cali1 -
-A INPUT -j cali-INPUT
-A FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A OUTPUT -j cali-OUTPUT
-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
-A cali-FORWARD -m mark --mark 0x40000/0x40000 -j DROP
-A cali-from-wl-dispatch -i eth0 -g cali-fw-cali1
-A cali-from-wl-dispatch -m comment --comment "Unknown interface" -j DROP
-A cali-fw-cali1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-cali1 -m conntrack --ctstate INVALID -j DROP
-A cali-fw-cali1 -j DROP
COMMIT
`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inEachVariant(t, func(s *site, variant string, _ func(string)) {
				if tt.link != "" {
					s.run("", "ip", "link", "add", tt.link, "up", "type", "veth", "peer", "name", "container")
					s.run("", "ip", "link", "set", "container", "up")
				}
				for program, icmp := range map[string]string{"iptables": "icmp", "ip6tables": "ipv6-icmp"} {
					s.run(strings.ReplaceAll(tt.rules, "ICMP", icmp), program+"-"+variant+"-restore")
				}
				if blocked, rules := s.look(); blocked != tt.blocked {
					t.Errorf("blocked are %q, want %q: %v", blocked, tt.blocked, rules)
				}
			})
		})
	}
}

// A node that does not forward packets is found at once, in each family.
func TestForwardingOff(t *testing.T) {
	for _, tt := range []struct{ setting, name, blocked string }{
		{"ipv4/ip_forward", "net.ipv4.ip_forward", "IPv4 outside, IPv4 pod"},
		{"ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding", "IPv6 outside, IPv6 pod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, plan.Config{}, false)
			s.set(tt.setting, "0")
			if blocked, rules := s.look(); blocked != tt.blocked || len(rules) > 0 {
				t.Errorf("blocked are %q, want %q; %v", blocked, tt.blocked, rules)
			}
			settings, _ := s.watcher.Advisories()
			if len(settings) != 1 || settings[0].Field != tt.name || !strings.Contains(settings[0].Remedy, "sysctl -w "+tt.name+"=1") {
				t.Fatalf("advisories: %v", settings)
			}
			s.set(tt.setting, "1")
			s.expect("")
			if settings, _ := s.watcher.Advisories(); len(settings) > 0 {
				t.Errorf("advisories: %v", settings)
			}
		})
	}
}

// What the proxy relays needs no forwarding.
func TestForwardingOffWithoutNeed(t *testing.T) {
	s := newSite(t, plan.Config{ProxyConnects: true}, false)
	s.set("ipv4/ip_forward", "0")
	s.set("ipv6/conf/all/forwarding", "0")
	s.expect("")
	if settings, _ := s.watcher.Advisories(); len(settings) > 0 {
		t.Errorf("advisories: %v", settings)
	}
}

// A table that is nearly full is reported until there is room again.
func TestFullConntrackTable(t *testing.T) {
	s := newSite(t, plan.Config{}, false)
	s.watcher.root = t.TempDir()
	dir := filepath.Join(s.watcher.root, "proc/sys/net/netfilter")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("nf_conntrack_max", "1000")
	for _, step := range []struct {
		count string
		full  bool
	}{{"0", false}, {"899", false}, {"900", true}, {"1000", true}, {"850", true}, {"800", true}, {"799", false}, {"850", false}} {
		write("nf_conntrack_count", step.count)
		s.look()
		settings, _ := s.watcher.Advisories()
		if (len(settings) == 1 && strings.Contains(settings[0].Reason, "1000 connections")) != step.full || len(settings) > 1 {
			t.Errorf("with %s of 1000: %v", step.count, settings)
		}
	}
}

// Rules are read again only if they have changed. Large tables are read rarely, but soon enough.
func TestReadings(t *testing.T) {
	s := newSite(t, plan.Config{}, false)
	s.expect("")
	generation := s.watcher.last.generation
	s.run("table inet fw { chain forward { type filter hook forward priority 0; policy drop; }; }", "nft", "-f", "-")
	now := clocktesting.NewFakePassiveClock(s.watcher.last.at)
	s.watcher.Clock = now
	for _, tt := range []struct {
		after, cost time.Duration
		again       bool
	}{{9 * time.Second / 10, 5 * time.Millisecond, false}, {maxPause - 1, time.Hour, false}, {maxPause, time.Hour, true}} {
		now.SetTime(s.watcher.last.at.Add(tt.after))
		s.watcher.last.cost = tt.cost
		s.watcher.Look(t.Context())
		if again := s.watcher.last.generation != generation; again != tt.again {
			t.Errorf("read again %v after a reading that took %v: %v", tt.after, tt.cost, again)
		}
	}
	s.expect(forwarded, "nft table inet fw, chain forward")
}
