package output

import (
	"strings"
	"testing"
)

func TestLinesAreWrappedBelowTheirText(t *testing.T) {
	tests := []struct{ name, line, want string }{
		{"short", "problem      none\n", "problem      none\n"},
		{"with a label", "problem      internalTrafficPolicy is Local and no endpoint on this node can be used\n",
			"problem      internalTrafficPolicy is\n             Local and no endpoint on\n             this node can be used\n"},
		{"without a label", "The kernel does what is desired, and has been found so a moment ago\n",
			"The kernel does what is desired, and has\n  been found so a moment ago\n"},
		{"indented", "  The kernel does what is desired, and has been found so\n", "  The kernel does what is desired, and\n    has been found so\n"},
		{"a long word", "remedy  " + strings.Repeat("x", 60) + " and more\n", "remedy  " + strings.Repeat("x", 60) + "\n        and more\n"},
		{"a table", "NODE    STATE    MODE      VERSION    UP      SERVICES\n", "NODE    STATE    MODE      VERSION    UP      SERVICES\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := forTerminal(test.line, 40, false); got != test.want {
				t.Errorf("got\n%q, want\n%q", got, test.want)
			}
		})
	}
}

func TestVerdictsHaveColours(t *testing.T) {
	got := forTerminal("default/web WORKS\nWORKS FOR SOME: not for pods\nREFUSED (dropped): no endpoint\nwhat to do  wait\nserved\n", 80, true)
	want := "default/web " + green + "WORKS" + plain + "\n" + yellow + "WORKS FOR SOME" + plain + ": not for pods\n" + red + "REFUSED" + plain + " (dropped): no endpoint\n" + bold + "what to do" + plain + "  wait\nserved\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
