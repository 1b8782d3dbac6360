//go:build linux

package iptables

import (
	"io"
	"strings"
	"testing"
)

// exampleInput has everything that an Input can have.
func exampleInput() *Input {
	return &Input{
		Table: NAT, Delete: []string{"OUTPUT -j OLD"}, Insert: []string{"OUTPUT -j A", "OUTPUT -j B"},
		Chains: []*Chain{
			{Name: "A", Text: []byte("-A A -j B\n-A A -j RETURN\n"), Rules: 2},
			{Name: "EMPTY"},
			{Name: "B", Text: []byte("-A B -j RETURN\n"), Rules: 1},
		},
		Remove: []string{"OLD", "OLDER"},
	}
}

func text(t *testing.T, in *Input) string {
	t.Helper()
	b, err := io.ReadAll(in.Reader())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInputText(t *testing.T) {
	flushed := &Input{Table: Filter, Remove: []string{"OLD"}, Flushed: true}
	for _, tt := range []struct {
		name string
		in   *Input
		want string
	}{
		{"nothing", &Input{Table: NAT}, ""},
		{"everything", exampleInput(), `*nat
:A - [0:0]
:EMPTY - [0:0]
:B - [0:0]
:OLD - [0:0]
:OLDER - [0:0]
-D OUTPUT -j OLD
-I OUTPUT -j B
-I OUTPUT -j A
-A A -j B
-A A -j RETURN
-A B -j RETURN
-X OLD
-X OLDER
COMMIT
`},
		{"flushed chains", flushed, "*filter\n-X OLD\nCOMMIT\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(t, tt.in); got != tt.want || tt.in.Empty() != (tt.want == "") {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// The line that iptables-restore names is traced to a rule.
func TestInputLinesAreTraced(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		in := exampleInput()
		in.Flushed = flushed
		for i, line := range strings.Split(text(t, in), "\n") {
			wantRule := strings.HasPrefix(line, "-A ")
			chain, rule := in.RuleAt(i + 1)
			if (chain != nil) != wantRule || wantRule && strings.Split(string(chain.Text), "\n")[rule] != line {
				t.Errorf("line %d, %q: rule %d of %v", i+1, line, rule, chain)
			}
		}
	}
}

func FuzzRefusedLine(f *testing.F) {
	f.Add("iptables-restore: line 4 failed")
	f.Add("iptables-restore v1.8.9 (nf_tables): line 17: RULE_APPEND failed (Invalid argument): rule in chain X")
	f.Fuzz(func(t *testing.T, message string) {
		line := RefusedLine(&CommandError{Message: message})
		in := exampleInput()
		in.RuleAt(line)
	})
}
