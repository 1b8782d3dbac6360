package experiment

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
)

// The kernel translates what is tried as it does for any client. A network
// namespace stands for the node.
func TestAttempts(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run(t, "", "sh", "-ec", "ip link set lo up; ip addr add 192.0.2.1/32 dev lo; ip addr add 2001:db8::1/128 dev lo nodad; ip route add 10.96.0.0/16 dev lo; ip route add fd00:96::/64 dev lo")
	ns.Run(t, `table inet t {
	chain o { type nat hook output priority -100
		ip daddr 10.96.0.1 tcp dport 80 dnat ip to 192.0.2.1:8080
		ip daddr 10.96.0.1 tcp dport 81 dnat ip to 192.0.2.1:8081
		ip daddr 10.96.0.1 tcp dport 82 dnat ip to 192.0.2.1:8082
		ip daddr 10.96.0.1 udp dport 53 dnat ip to 192.0.2.1:5353
		ip6 daddr fd00:96::1 tcp dport 80 dnat ip6 to [2001:db8::1]:8080
	}
	chain i { type filter hook input priority 0
		tcp dport 8082 drop
		tcp dport 8083 reject
	}
}`, "nft", "-f", "-")
	for _, at := range []string{"192.0.2.1:8080", "[2001:db8::1]:8080"} {
		if err := ns.Do(func() error {
			l, err := net.Listen("tcp", at)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	from, err := Open(fmt.Sprintf("/proc/self/fd/%d", ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	tests := []struct {
		to       string
		protocol model.Protocol
		want     Outcome
		endpoint string
		meaning  string // if it is predicted to work
	}{
		{"10.96.0.1:80", model.TCP, Answered, "192.0.2.1:8080", "as predicted"},
		{"[fd00:96::1]:80", model.TCP, Answered, "[2001:db8::1]:8080", "as predicted"},
		{"10.96.0.1:81", model.TCP, ConnectionRefused, "192.0.2.1:8081", "the packet reached 192.0.2.1:8081, which refused it"},
		{"10.96.0.1:82", model.TCP, Silent, "192.0.2.1:8082", "the packet was sent to 192.0.2.1:8082, and nothing came back"},
		{"10.96.0.1:53", model.UDP, ConnectionRefused, "192.0.2.1:5353", "the packet reached 192.0.2.1:5353, which refused it"},
		{"192.0.2.1:8083", model.TCP, ConnectionRefused, "", "it was refused, by an endpoint or by a firewall"},
		{"10.96.0.1:80", model.SCTP, Untried, "", "the proxy opens no SCTP connections"},
	}
	for _, tt := range tests {
		t.Run(tt.to+tt.protocol.String(), func(t *testing.T) {
			r := new(Runner).run(t.Context(), Attempt{To: netip.MustParseAddrPort(tt.to), Protocol: tt.protocol, From: from}, ns.FD())
			r.Compare(verdict.Works)
			endpoint := ""
			if r.Endpoint.IsValid() {
				endpoint = r.Endpoint.String()
			}
			if r.Outcome != tt.want || endpoint != tt.endpoint || !strings.Contains(r.Meaning, tt.meaning) || r.Expected != (tt.want == Answered) {
				t.Errorf("%s: %s (expected: %v)\nwant %s by %q: %s", r, r.Meaning, r.Expected, tt.want, tt.endpoint, tt.meaning)
			}
		})
	}
}

// A connection that the proxy accepts is answered once an endpoint has taken it, and by nobody
// before.
func TestAttemptsThatTheProxyRelays(t *testing.T) {
	endpoint := netip.MustParseAddrPort("10.244.1.1:8080")
	tests := []struct {
		name     string
		outcomes []dataplane.Outcome // of the attempts of the proxy
		reset    bool                // at the end
		want     Outcome
		meaning  string
	}{
		{"taken", []dataplane.Outcome{dataplane.Refused, dataplane.Accepted}, false, Answered, "as predicted"},
		{"taken, and reset by the endpoint", []dataplane.Outcome{dataplane.Accepted}, true, Answered, "as predicted"},
		{"refused", []dataplane.Outcome{dataplane.Refused}, true, ConnectionRefused, "the packet reached 10.244.1.1:8080, which refused it"},
		{"not answered", []dataplane.Outcome{dataplane.Unanswered}, true, Silent, "sent to 10.244.1.1:8080, and nothing came back"},
		{"not answered yet", []dataplane.Outcome{dataplane.Unanswered}, false, Silent, "sent to 10.244.1.1:8080, and nothing came back"},
		{"not tried", nil, true, ConnectionRefused, "the proxy took the connection and ended it"},
		{"not tried yet", nil, false, Silent, "has not tried an endpoint yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var u Runner
			over := make(chan struct{})
			go func() {
				defer close(over)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { conn.Close() })
				for _, o := range tt.outcomes {
					u.Tried(dataplane.Attempt{Client: conn.RemoteAddr().(*net.TCPAddr).AddrPort(), Endpoint: endpoint, Protocol: model.TCP, Outcome: o})
				}
				if tt.reset {
					_, _ = conn.(*net.TCPConn).SetLinger(0), conn.Close()
				}
			}()
			r := u.run(t.Context(), Attempt{To: l.Addr().(*net.TCPAddr).AddrPort(), Protocol: model.TCP, Relayed: true}, 0)
			l.Close()
			<-over
			r.Compare(verdict.Works)
			if r.Outcome != tt.want || !strings.Contains(r.Meaning, tt.meaning) || r.Endpoint.IsValid() != (len(tt.outcomes) > 0) {
				t.Errorf("%s: %s\nwant %s: %s", r, r.Meaning, tt.want, tt.meaning)
			}
			if len(u.listening) > 0 {
				t.Error("it is listened on")
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run(t, "", "sh", "-ec", "ip link set lo up; ip addr add 198.51.100.77/32 dev lo")
	n, err := Open(fmt.Sprintf("/proc/self/fd/%d", ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if at := n.Address(model.IPv4); at != netip.MustParseAddr("198.51.100.77") || n.Node() {
		t.Errorf("it has %v", at)
	}
	if _, err := Open("no-such-namespace"); err == nil || !strings.Contains(err.Error(), "ip netns list") {
		t.Errorf("opening what does not exist: %v", err)
	}
	if _, err := Open("/dev/null"); err == nil {
		t.Error("a file was taken for a namespace")
	}
	var inside *exec.Cmd
	if err := ns.Do(func() error {
		inside = exec.Command("sleep", "60")
		return inside.Start()
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = inside.Process.Kill(), inside.Wait() }() // it ends by the signal
	if n, err := Having(netip.MustParseAddr("198.51.100.77")); err != nil || n.Node() {
		t.Errorf("the namespace of a process was not found by its address: %v", err)
	} else {
		n.Close()
	}
	if _, err := Having(netip.MustParseAddr("198.51.100.78")); err == nil {
		t.Error("an address that nobody has was found")
	}
	var node Namespace
	if !node.Node() || node.String() != "this node" {
		t.Errorf("the node's is %s", node)
	}
}

// What is to be handed to another node is not known here: without an entry of connection tracking that says nothing.
func TestMeaningOfWhatIsHandedOn(t *testing.T) {
	here := netip.MustParseAddrPort("10.244.1.1:8080")
	for _, tt := range []struct {
		outcome  Outcome
		endpoint netip.AddrPort
		expected bool
		meaning  string
	}{
		{Answered, netip.AddrPort{}, true, "as predicted: this node hands it to node n3, which answers directly"},
		{Answered, here, false, "it went to 10.244.1.1:8080 through this node, although node n3 is to get it"},
		{ConnectionRefused, netip.AddrPort{}, false, "this node hands it to node n3, and it was refused"},
		{Silent, netip.AddrPort{}, false, "this node hands it to node n3, and nothing came back"},
	} {
		r := &Result{Outcome: tt.outcome, Protocol: "TCP", Endpoint: tt.endpoint, HandedTo: "n3"}
		r.Compare(verdict.Works)
		if !strings.HasPrefix(r.Meaning, tt.meaning) || r.Expected != tt.expected || r.Expected != (r.Remedy == "") {
			t.Errorf("%s by %s: %s (expected: %v; %s)", tt.outcome, tt.endpoint, r.Meaning, r.Expected, r.Remedy)
		}
	}
}
