//go:build linux

package coexist

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/mode/leftovers"
)

const mark = 1 << 14

var variants = []string{"nft", "legacy"}

// site is a network namespace with rules of other programs.
type site struct {
	*testing.T
	variant  string
	programs []string // of both families
	watcher  *Watcher
}

// inEachVariant runs a test with both variants of iptables.
func inEachVariant(t *testing.T, test func(*site)) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			netnstest.Enter(t)
			t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
			s := &site{T: t, variant: variant, programs: []string{"iptables-" + variant, "ip6tables-" + variant}}
			s.watcher = New(Options{
				Uses:   leftovers.Uses,
				Logger: logr.Discard(), Clock: clock.RealClock{}, Mark: func() uint32 { return mark },
				Period: func() time.Duration { return time.Hour },
			})
			test(s)
		})
	}
}

// iptables runs a command line in both families.
func (s *site) iptables(args string) {
	s.Helper()
	for _, program := range s.programs {
		s.run(program, "-w "+args)
	}
}

func (s *site) run(program, args string) string {
	s.Helper()
	out, err := exec.Command(program, strings.Fields(args)...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s %s: %v: %s", program, args, err, out)
	}
	return string(out)
}

// nat are the rules of table nat, without counters.
func (s *site) nat(program string) string {
	s.Helper()
	text := s.run(program+"-save", "-t nat")
	return regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]`).ReplaceAllString(text, "")
}

// advised are the objects and fields of the advisories.
func (s *site) advised() []string {
	var out []string
	for _, p := range s.watcher.Advisories() {
		out = append(out, p.Kind+": "+p.Field)
	}
	slices.Sort(out)
	return out
}

func (s *site) expect(want ...string) {
	s.Helper()
	s.watcher.Look(s.Context())
	var all []string
	for _, program := range s.programs {
		for _, w := range want {
			all = append(all, program+": "+w)
		}
	}
	slices.Sort(all)
	if diff := cmp.Diff(all, s.advised()); diff != "" {
		s.Errorf("advisories (-want +got):\n%s", diff)
	}
}

func TestStaleChainsAreReported(t *testing.T) {
	inEachVariant(t, func(s *site) {
		for _, chain := range []string{"KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-SVC-NPX46M4PTMTKRN6Y", "MINE", "KUBE-FIREWALL"} {
			s.iptables("-t nat -N " + chain)
		}
		s.iptables("-t nat -A PREROUTING -j KUBE-SERVICES") // kube-proxy's own hook
		s.iptables("-t nat -A KUBE-SERVICES -j KUBE-SVC-NPX46M4PTMTKRN6Y")
		s.iptables("-t nat -A MINE -j KUBE-MARK-MASQ")
		s.iptables("-t nat -A OUTPUT -j KUBE-FIREWALL")
		s.expect()
		s.iptables("-t nat -A MINE -p tcp -g KUBE-SERVICES")
		s.expect("table nat, chain MINE")
		p := s.watcher.Advisories()[0]
		if want := s.programs[0] + "-save -t nat | grep KUBE-SERVICES"; !strings.Contains(p.Reason, "KUBE-SERVICES") || !strings.Contains(p.Remedy, want) {
			s.Errorf("%v", p)
		}
	})
}

func TestMarkChainIsKept(t *testing.T) {
	rule := fmt.Sprintf("-A KUBE-MARK-MASQ -j MARK --set-xmark %#x/%#x\n", mark, mark)
	inEachVariant(t, func(s *site) {
		s.watcher.Keep(t.Context())
		if out := s.run("nft", "list ruleset"); out != "" {
			s.Errorf("made where there is no iptables:\n%s", out)
		}
		s.iptables("-t filter -N MINE")
		s.watcher.Keep(t.Context())
		if out := s.run("nft", "list ruleset"); strings.Contains(out, "KUBE-") {
			s.Errorf("made where there is no table nat:\n%s", out)
		}
		s.iptables("-t nat -N KUBE-KUBELET-CANARY") // as kubelet does
		for _, disturb := range []func(){
			func() {},
			func() { s.iptables("-t nat -F KUBE-MARK-MASQ") },
			func() { s.iptables("-t nat -R KUBE-MARK-MASQ 1 -j MARK --set-xmark 0x8000/0x8000") },
			func() { s.iptables("-t nat -A KUBE-MARK-MASQ -j ACCEPT") },
			func() { s.iptables("-t nat -F KUBE-MARK-MASQ"); s.iptables("-t nat -X KUBE-MARK-MASQ") },
		} {
			if strings.Contains(s.nat(s.programs[0]), "KUBE-MARK") {
				disturb()
			}
			s.watcher.Keep(t.Context())
			for _, program := range s.programs {
				if got := s.nat(program); strings.Count(got, "KUBE-MARK-MASQ ") != 2 || !strings.Contains(got, rule) {
					s.Errorf("%s has\n%s", program, got)
				}
			}
		}
		if got := s.advised(); got != nil {
			s.Errorf("advisories: %v", got)
		}
	})
}

func TestMarkChainIsWrittenOnlyIfWrong(t *testing.T) {
	inEachVariant(t, func(s *site) {
		s.iptables("-t nat -N KUBE-MARK-MASQ")
		s.iptables("-t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000") // as upstream's
		before := s.run("nft", "-a list ruleset")
		s.watcher.Keep(t.Context())
		if diff := cmp.Diff(before, s.run("nft", "-a list ruleset")); diff != "" {
			s.Errorf("written anew (-before +after):\n%s", diff)
		}
	})
}

// Users of nftables may have a table nat, too.
func TestNativeTablesAreLeftAlone(t *testing.T) {
	netnstest.Enter(t)
	s := &site{T: t, variant: "nft"}
	s.watcher = New(Options{Logger: logr.Discard(), Uses: leftovers.Uses, Mark: func() uint32 { return mark }})
	s.run("nft", "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }")
	s.run("nft", "add table ip filter; add chain ip filter forward { type filter hook forward priority 0; policy drop; }")
	s.watcher.Keep(t.Context())
	if out := s.run("nft", "list ruleset"); strings.Contains(out, "KUBE") {
		t.Errorf("there is now\n%s", out)
	}
	if got := s.advised(); got != nil {
		t.Errorf("advisories: %v", got)
	}
}
