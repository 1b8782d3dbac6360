package nodeproblem

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// blockedTo returns why pods do not reach an endpoint.
func (s *site) blockedTo(to string, protocol model.Protocol) string {
	s.Helper()
	at := netip.MustParseAddrPort(to)
	for p := range s.paths {
		if p.From == plan.PodClient && p.Family == model.FamilyOf(at.Addr()) {
			p.To, p.Protocol = at, protocol
			if o := s.watcher.Blocked(p); o != nil {
				return o.Why
			}
		}
	}
	return ""
}

// Rules that ask for addresses, ports and protocols block the endpoints that have these.
func TestRulesAboutEndpoints(t *testing.T) {
	// Of a range of ports no packet is known by its port: a firewall may admit it, or not.
	const one, six, two, other, any = "10.244.2.1:8080", "[fd00:10:244:2::1]:8080", "10.244.2.2:8080", "10.244.2.1:8081", "10.244.2.1:0"
	nft := func(rules string) (string, string) {
		return "nft", "table inet fw { chain f { type filter hook forward priority 0; " + rules + "\n}\n}\n"
	}
	for _, tt := range []struct{ rules, blocked string }{
		{"tcp dport 8080 drop", one + " " + six + " " + two},
		{"tcp dport 8080-8090 drop", one + " " + six + " " + two + " " + other},
		{"tcp dport != 8080 drop", other},
		{"tcp dport { 22, 8081 } drop", other},
		{"tcp dport != { 22, 8081 } drop", one + " " + six + " " + two},
		{"tcp dport < 8081 drop", one + " " + six + " " + two},
		{"udp dport 8080 drop", ""},
		{"tcp sport 8080 drop", one + " " + six + " " + two}, // the answers
		{"meta l4proto tcp drop", one + " " + six + " " + two + " " + other + " " + any},
		{"meta l4proto { udp, sctp } drop", ""},
		{"ip daddr 10.244.2.1 drop", one + " " + other + " " + any},
		{"ip daddr 10.244.2.0/30 reject", one + " " + two + " " + other + " " + any},
		{"ip daddr 10.244.2.0/23 tcp dport 8081 drop", other},
		{"ip daddr { 10.244.2.2, 192.0.2.1 } drop", two},
		{"ip saddr 10.244.2.2 drop", two},
		{"ip saddr 10.244.1.0/24 drop", ""}, // clients, of which only some have such an address
		{"ip6 daddr fd00:10:244:2::/64 drop", six},
		{"tcp dport vmap { 8080 : drop, 8081 : accept }", one + " " + six + " " + two},
		{"tcp dport 8080 ct state new drop", one + " " + six + " " + two},
		{"policy drop; tcp dport 8081 accept; ct state established accept", one + " " + six + " " + two},
		{"policy drop; ip saddr 10.244.1.0/24 accept; ct state established accept", six},
	} {
		t.Run(tt.rules, func(t *testing.T) {
			s := newSite(t, plan.Config{}, false)
			program, input := nft(tt.rules)
			s.run(input, program, "-f", "-")
			s.look()
			s.expectBlocked(tt.blocked, one, six, two, other, any)
		})
	}
}

// expectBlocked fails unless some of all endpoints are blocked.
func (s *site) expectBlocked(want string, all ...string) {
	s.Helper()
	var blocked []string
	for _, to := range all {
		if s.blockedTo(to, model.TCP) != "" {
			blocked = append(blocked, to)
		}
	}
	if got := strings.Join(blocked, " "); got != want {
		s.Errorf("blocked are %q, want %q", got, want)
	}
}

// Both variants of iptables say the same of them.
func TestRulesOfIPTablesAboutEndpoints(t *testing.T) {
	const one, two, other = "10.244.2.1:8080", "10.244.2.2:8080", "10.244.2.1:8081"
	inEachVariant(t, func(s *site, variant string, _ func(string)) {
		for _, tt := range []struct{ rule, blocked string }{
			{"-p tcp --dport 8080 -j DROP", one + " " + two},
			{"-p tcp ! --dport 8080 -j DROP", other},
			{"-p tcp --dport 8081:9000 -j REJECT", other},
			{"-p udp --dport 8080 -j DROP", ""},
			{"! -p udp -j DROP", one + " " + two + " " + other},
			{"-d 10.244.2.1 -j DROP", one + " " + other},
			{"! -d 10.244.2.0/31 -j DROP", two},
			{"-s 10.244.2.2 -j DROP", two},
			{"-p tcp -m multiport --dports 22,8081:8090 -j DROP", other},
			{"-p tcp -m multiport --ports 22,8081 -j DROP", ""},
			{"-p tcp --syn --dport 8080 -j DROP", ""}, // flags are not interpreted
			{"-o nothere -p tcp --dport 8080 -j DROP", ""},
			{"! -o nothere -p tcp --dport 8080 -j DROP", one + " " + two},
			{"-i eth0 -p tcp --dport 8080 -j DROP", ""},
			{"-i nothere+ -p tcp --dport 8080 -j DROP", ""},
		} {
			s.run("", "iptables-"+variant, strings.Fields("-w -A FORWARD "+tt.rule)...)
			s.look()
			if s.expectBlocked(tt.blocked, one, two, other); s.Failed() {
				s.Fatal(tt.rule)
			}
			s.run("", "iptables-"+variant, "-w", "-F", "FORWARD")
		}
	})
}

// Endpoints without a route are found, as are those that get one.
func TestNoRoute(t *testing.T) {
	const gone, there, six = "10.244.9.1:80", "10.244.9.2:80", "[fd00:10:244:9::1]:80"
	s := newSite(t, plan.Config{}, false)
	s.look()
	s.expectBlocked("", gone, there, six)
	s.run("", "ip", "route", "add", "blackhole", "10.244.9.0/24")
	s.run("", "ip", "route", "add", "10.244.9.2", "dev", "eth0")
	s.run("", "ip", "-6", "route", "add", "unreachable", "fd00:10:244:9::/64")
	s.look()
	s.expectBlocked(gone+" "+six, gone, there, six)
	if why := s.blockedTo(gone, model.TCP); why != "this node has no route to 10.244.9.1" {
		t.Error(why)
	}
	s.run("", "ip", "route", "del", "blackhole", "10.244.9.0/24")
	s.run("", "ip", "-6", "route", "del", "unreachable", "fd00:10:244:9::/64")
	s.look()
	s.expectBlocked("", gone, there, six)
	s.run("", "ip", "route", "del", "default")
	s.look()
	s.expectBlocked(gone, gone, there, six)
}

// machine is a Watcher of files that a test writes, with a clock.
type machine struct {
	*testing.T
	*Watcher
	now *clocktesting.FakePassiveClock
}

func newMachine(t *testing.T) *machine {
	m := &machine{T: t, now: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC))}
	m.Watcher = NewWatcher(Options{Logger: logr.Discard(), Clock: m.now})
	m.root = t.TempDir()
	return m
}

func (m *machine) write(name, text string) {
	m.Helper()
	file := filepath.Join(m.root, "proc", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		m.Fatal(err)
	}
}

// Packets for which there is no room count for some seconds.
func TestNoRoomForConnections(t *testing.T) {
	m := newMachine(t)
	m.write("sys/net/netfilter/nf_conntrack_max", "1000")
	for i, step := range []struct {
		count, drops string
		after        time.Duration
		want         bool
	}{
		{"500", "00000005 00000000", 0, false},
		{"1000", "00000005 00000000", 2 * time.Second, false},
		{"1000", "00000005 0000000a", 2 * time.Second, true},
		{"1000", "00000005 0000000a", noRoomTime - time.Second, true},
		{"1000", "00000005 0000000a", 2 * time.Second, false},
		{"1000", "00000006 0000000a", 2 * time.Minute, true},
		{"100", "00000007 0000000a", time.Second, false}, // it had other reasons
	} {
		m.now.SetTime(m.now.Now().Add(step.after))
		m.write("sys/net/netfilter/nf_conntrack_count", step.count)
		drops := strings.Fields(step.drops)
		m.write("thread-self/net/stat/nf_conntrack", "entries  found drop early_drop\n00000001 00000000 "+drops[0]+" 00000000\n00000001 00000000 "+drops[1]+" 00000000")
		if _, got := m.conntrack(); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
}

// A few packets that rp_filter drops are no reason to warn, and many are one for some minutes.
func TestReversePathDrops(t *testing.T) {
	m := newMachine(t)
	m.write("sys/net/ipv4/conf/eth0/rp_filter", "1")
	see := func(dropped string, after time.Duration, want bool) {
		t.Helper()
		m.now.SetTime(m.now.Now().Add(after))
		m.write("thread-self/net/netstat", "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 0 "+dropped)
		if got := m.reversePath(); (len(got) == 1 && strings.Contains(got[0].Reason, "strict on eth0")) != want || len(got) > 1 {
			t.Errorf("%s dropped: %v", dropped, got)
		}
	}
	see("100", 0, false) // before
	see("104", time.Second, false)
	see("105", time.Second, true)
	see("105", strayTime-time.Second, true)
	see("106", 0, true)
	see("106", strayTime-time.Second, true)
	see("106", time.Second, false)
	see("110", 2*time.Minute, false)
	see("111", 2*time.Minute, false)
	m.write("sys/net/ipv4/conf/eth0/rp_filter", "2")
	see("112", time.Second, false)
}
