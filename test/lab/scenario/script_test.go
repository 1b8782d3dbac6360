//go:build linux

package scenario

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReportsWhatIsWrong(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want string // part of the error, empty for none
	}{
		{"everything right", "let web 10.96.0.1 fd00:10:96::1\nflags --a --b\napply a.yaml\nendpoints web pod1 pod2(terminating,zone=a)\nstart\n" +
			"expect client,pod1 -> web:80,node1:30080,node1-spare:30080,10.96.0.1:80 tcp,udp v4 answered by pod1,pod2:8081 evenly source self hairpin node1\n" +
			"http client,pod1 -> node1:30081 v4 200 \"a\": 1\nagain\nonly nftables: kernel has x y\nopen c client -> web:80\nalive c by pod1\ntraffic client -> web:80 tcp\nlost 0\nexec node1 true\noutput lacks x\n", ""},
		{"unknown step", "dance", `unknown step "dance"`},
		{"unknown file", "apply b.yaml", `no file "b.yaml"`},
		{"unknown name", "expect client -> web:80 refused", `there is no name "web"`},
		{"unknown host", "expect klient -> node1:80 refused", `no host "klient"`},
		{"unknown host answers", "expect client -> node1:80 answered by podd1", `no host "podd1"`},
		{"no port", "expect client -> node1 refused", "no port"},
		{"no verdict", "expect client -> node1:80 tcp", "no verdict"},
		{"unknown clause", "expect client -> node1:80 refused loudly now", `unknown clause "loudly"`},
		{"source of a refusal", "expect client -> node1:80 refused source client", "no endpoint can be seen"},
		{"evenly without hosts", "expect client -> node1:80 answered evenly", "need several hosts"},
		{"unknown mode", "only magic: start", "some of the modes"},
		{"unknown mode in a list", "only nftables,magic: start", "some of the modes"},
		{"no mode", "except : start", "some of the modes"},
		{"unknown mode of a start", "mode magic", `unknown mode "magic"`},
		{"unknown mode of rules", "kernel of magic has x", `unknown mode "magic"`},
		{"turns of two", "expect pod1,pod2 -> node1:80 answered by pod1,pod2 turns", "turns need a single host"},
		{"bad share", "expect pod1 -> node1:80 answered by pod1*x,pod2 evenly", `"x" is not a share`},
		{"share of nothing", "expect pod1 -> node1:80 answered by pod1*2,pod2", "shares need evenly or turns"},
		{"unknown remark", "endpoints web pod1(tired)", `unknown remark "tired"`},
		{"unclosed remark", "endpoints web pod1(notready", "no closing parenthesis"},
		{"swapped addresses", "let web fd00::1 10.96.0.1", "want an IPv4 and then an IPv6 address"},
		{"too much", "start now", "nothing may follow"},
		{"no status", "http client -> node1:80 v4", "want a status"},
		{"wrong status", "http client -> node1:80 fine", "want a status"},
		{"reset in another way", "reset c loudly", "want NAME or NAME when sending"},
		{"moved nowhere", "moved c", "want NAME to HOSTS"},
		{"moved to an unknown host", "moved c to podd1", `no host "podd1"`},
		{"no number", "lost many", "want a number"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("x", []byte("# semantics: x\n"+test.in+"\n-- a.yaml --\nkind: Service\n"))
			switch {
			case test.want == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestParseTakesTitleAndSemantics(t *testing.T) {
	s, err := Parse("x", []byte("# A title.\n# More.\n# semantics: a, b\n# semantics: c\n\nstart\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Title != "A title." {
		t.Errorf("title %q", s.Title)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, s.Semantics); diff != "" {
		t.Errorf("semantics (-want +got):\n%s", diff)
	}
}

func TestStepsAreForTheModesTheyName(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{"start", []string{"nftables", "iptables-nft", "iptables-legacy"}},
		{"only nftables: start", []string{"nftables"}},
		{"except nftables: start", []string{"iptables-nft", "iptables-legacy"}},
		{"only iptables: start", []string{"iptables-nft", "iptables-legacy"}},
		{"except iptables: start", []string{"nftables"}},
		{"only iptables-nft: start", []string{"iptables-nft"}},
		{"only nftables,iptables-nft: start", []string{"nftables", "iptables-nft"}},
		{"except iptables-nft,nftables: start", []string{"iptables-legacy"}},
		{"except iptables-nft: start", []string{"nftables", "iptables-legacy"}},
	}
	for _, test := range tests {
		s, err := Parse("x", []byte("# semantics: x\n"+test.line+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, mode := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
			if s.steps[0].runsIn(mode) {
				got = append(got, mode)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.line, diff)
		}
	}
}

func TestScriptWithoutSemanticsIsRefused(t *testing.T) {
	if _, err := Parse("x", []byte("# A title.\nstart\n")); err == nil {
		t.Error("no error")
	}
}

func TestMentionsWantsTheWholeAddress(t *testing.T) {
	tests := []struct {
		text, address string
		want          bool
	}{
		{"10.96.0.1 . tcp . 80", "10.96.0.1", true},
		{"10.96.0.10 . tcp . 80", "10.96.0.1", false},
		{"110.96.0.1 . tcp . 80", "10.96.0.1", false},
		{"10.96.0.0/16", "10.96.0.0", false},
		{"-d 10.96.0.1/32 -j", "10.96.0.1", true},
		{"-d 10.96.0.0/3 -j", "10.96.0.0", false},
		{"-d fd00:10:96::1/128", "fd00:10:96::1", true},
		{"-d fd00:10:96::1/12", "fd00:10:96::1", false},
		{"{ fd00:10:96::1 }", "fd00:10:96::1", true},
		{"{ fd00:10:96::1f }", "fd00:10:96::1", false},
		{"", "10.96.0.1", false},
	}
	for _, test := range tests {
		if got := mentions(test.text, test.address); got != test.want {
			t.Errorf("mentions(%q, %q) = %v", test.text, test.address, got)
		}
	}
}

// The scenario that CONTRIBUTING.md shows is complete.
func TestScenarioOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(guide), "```txtar\n")
	script, _, closed := strings.Cut(rest, "   ```")
	if !found || !closed {
		t.Fatal("there is none")
	}
	s, err := Parse("guide", []byte(strings.ReplaceAll("\n"+script, "\n   ", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Semantics) == 0 {
		t.Error("it says nothing of semantics.md")
	}
}
