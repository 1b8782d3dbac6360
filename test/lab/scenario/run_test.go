//go:build linux

package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
)

// TestMain has statements about packets wait side by side.
func TestMain(m *testing.M) {
	testkit.Overlap(3)
	os.Exit(m.Run())
}

// standIn is a proxy of a few lines: it loads rules.nft from its directory
// whenever that changes, and logs like the real one. It never removes rules.
const standIn = `#!/bin/sh
while :; do
	sum=$(cat "$2"/rules.nft 2>/dev/null | sha256sum | cut -c1-64)
	if [ "$sum" != "$last" ]; then
		if [ -e "$2"/rules.nft ]; then
			{ echo "flush ruleset"; cat "$2"/rules.nft; } | nft -f - || exit 1
		fi
		echo "\"Loaded manifests\" digest=\"$sum\""
		echo "\"Programmed\" revision=1"
		last=$sum
	fi
	sleep 0.02
done
`

// rules are two services: web with its endpoints pod1 and pod2, and skewed,
// which gives pod2 a small share. Outsiders are masqueraded; what pod1 says to
// itself is, too. Port 81 is rejected and port 82 dropped.
const rules = `
table inet standin {
	chain services {
		ip daddr 10.96.0.1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to numgen random mod 2 map { 0: 10.244.1.1, 1: 10.244.1.2 } : 8080
		ip6 daddr fd00:10:96::1 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to numgen random mod 2 map { 0: fd00:10:244:1::1, 1: fd00:10:244:1::2 } : 8080
		ip daddr 10.96.0.2 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip to numgen random mod 5 map { 0: 10.244.1.2, 1-4: 10.244.1.1 } : 8080
		ip6 daddr fd00:10:96::2 meta l4proto { tcp, udp, sctp } th dport 80 dnat ip6 to numgen random mod 5 map { 0: fd00:10:244:1::2, 1-4: fd00:10:244:1::1 } : 8080
	}
	chain prerouting { type nat hook prerouting priority -100; jump services; }
	chain output { type nat hook output priority -100; jump services; }
	chain postrouting {
		type nat hook postrouting priority 100;
		ct status dnat ip saddr 198.51.100.0/24 masquerade
		ct status dnat ip6 saddr 2001:db8:1::/64 masquerade
		ip saddr 10.244.1.1 ip daddr 10.244.1.1 masquerade
		ip6 saddr fd00:10:244:1::1 ip6 daddr fd00:10:244:1::1 masquerade
	}
	chain forward {
		type filter hook forward priority 0;
		meta l4proto tcp ct original proto-dst 81 reject with tcp reset
		meta l4proto { udp, sctp } th dport 81 reject
		meta l4proto { tcp, udp, sctp } th dport 82 drop
	}
}
`

const preamble = `# semantics: self-test
let web 10.96.0.1 fd00:10:96::1
let skewed 10.96.0.2 fd00:10:96::2
apply rules.nft
start
`

// runSteps runs steps against the stand-in. They do not end as scripts do unless
// more says so.
func runSteps(t *testing.T, steps string, more ...step) error {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "standin")
	if err := testkit.WriteExecutable(binary, []byte(standIn)); err != nil {
		t.Fatal(err)
	}
	s, err := Parse("self-test", []byte(preamble+steps+"\n-- rules.nft --\n"+rules+"-- none.nft --\n# no rules\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.newRunner(t.Context(), Options{
		Mode:    "nftables",
		Binary:  binary,
		Timeout: 300 * time.Millisecond,
		Logf:    func(string, ...any) {},
		Digest: func(dir string) (string, error) {
			data, err := os.ReadFile(filepath.Join(dir, "rules.nft"))
			if err != nil && !os.IsNotExist(err) {
				return "", err
			}
			sum := sha256.Sum256(data)
			return hex.EncodeToString(sum[:]), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r.runSteps(t.Context(), append(s.steps, more...))
}

func TestTrueStatementsHold(t *testing.T) {
	t.Parallel()
	err := runSteps(t, `
expect client -> web:80 answered by pod1,pod2 evenly source node1
expect pod1 -> web:80 answered by pod1:8080,pod2 source self hairpin node1
expect pod3 -> web:80 answered by pod1,pod2 source self
expect client,pod3 -> skewed:80 answered by pod1,pod2
expect client,pod3 -> web:81 tcp,udp,sctp refused
expect client,pod3 -> web:82 dropped
expect client,pod3,node1 -> web:83 passed
open standing client,pod3 -> web:80 tcp,udp
open early client,pod3 -> web:83 udp unanswered
moved standing to pod1,pod2
moved early to nobody
kernel has table inet standin
traffic client,pod3 -> web:80
restart
again
alive standing
lost 0
exec node1 echo hello
output has hello
output lacks goodbye
log has "Programmed"
forgotten client -> web:80 after 10ms
flush
kernel lacks standin
expect client -> web:80 passed
replace rules.nft by none.nft
expect client -> web:80 passed
stop
`)
	// The stand-in has no way to end politely.
	if err == nil || !strings.Contains(err.Error(), "stop: proxy stopped: signal: terminated") {
		t.Error(err)
	}
}

func TestFalseStatementsAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, step, want string }{
		{"refused", "expect client -> web:80 tcp v4 refused", "answered by pod"},
		{"dropped", "expect client -> web:81 tcp v4 dropped", "refused"},
		{"passed", "expect client -> web:82 tcp v4 passed", "dropped"},
		{"answered", "expect client -> web:81 sctp v6 answered", "refused"},
		{"one host too few", "expect client -> web:80 tcp v4 answered by pod1", "answered by pod2"},
		{"one host too many", "expect client -> web:80 udp v6 answered by pod1,pod2,pod3", "never answered by pod3"},
		{"other port", "expect client -> web:80 tcp v4 answered by pod1:8081,pod2", "never answered by pod1:8081|answered by pod1:8080"},
		{"source kept", "expect client -> web:80 udp v4 answered source client", "which is not client"},
		{"source masqueraded", "expect pod3 -> web:80 sctp v4 answered source node1", "which is not node1"},
		{"no hairpin", "expect pod1 -> web:80 tcp v6 answered by pod1,pod2 source self", "which is not self"},
		{"not even", "expect client -> skewed:80 udp v4 answered by pod1,pod2 evenly", "not evenly"},
		{"not sticky", "expect client -> web:80 udp v4 answered by pod1,pod2 sticky", "not sticky"},
		{"kernel has", "kernel has nonsense", "does not hold"},
		{"kernel lacks", "kernel lacks standin", "does not hold"},
		{"dead connection", "open c pod3 -> web:80 v4\nexec node1 nft add rule inet standin forward drop\nalive c", "timeout"},
		{"answered after all", "open c pod3 -> web:80 udp v4 unanswered", "want nobody"},
		{"not moved", "open c pod3 -> web:80 udp v4\nmoved c to pod3", "want pod3"},
		{"not gone", "open c pod3 -> web:80 udp v4\nmoved c to nobody", "want nobody"},
		{"not found", "open c pod3 -> web:83 udp v4 unanswered\nmoved c to pod1,pod2", "timeout"},
		{"losses", "traffic client -> web:80 tcp,udp v4\nflush\nexpect client -> web:80 tcp v4 passed\nlost 0", "new connections failed"},
		{"no web server", "http client -> node1:8080 v4 200", "malformed HTTP"},
		{"no server", "http client -> node1:8000 v6 200", "connection refused"},
		{"failing command", "exec node1 false", "exit status 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := runSteps(t, test.step)
			if err == nil {
				t.Fatal("it went unnoticed")
			}
			for want := range strings.SplitSeq(test.want, "|") {
				if strings.Contains(err.Error(), want) {
					return
				}
			}
			t.Errorf("error %v, want one with %q", err, test.want)
		})
	}
}

func TestEndFindsWhatIsLeftInTheKernel(t *testing.T) {
	t.Parallel()
	err := runSteps(t, "expect client -> web:80 tcp v4 answered by pod1,pod2", epilogue...)
	if err == nil || !strings.Contains(err.Error(), "still in the kernel") {
		t.Errorf("error %v, want one with %q", err, "still in the kernel")
	}
}
