package xtables

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/netns/netnstest"
)

var families = []*Family{IPv4, IPv6}

// restore has iptables-legacy write to a table.
func restore(t *testing.T, f *Family, lines ...string) {
	t.Helper()
	cmd := exec.Command(f.Command+"-legacy-restore", "--noflush", "--wait=60")
	cmd.Env = append(cmd.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	cmd.Stdin = strings.NewReader(strings.Join(append(lines, "COMMIT"), "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd, err, out)
	}
}

func open(t *testing.T, f *Family) *Socket {
	t.Helper()
	s, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTablesAndChainsAreSeenWithoutAnyProgram(t *testing.T) {
	for _, f := range families {
		t.Run(f.Command, func(t *testing.T) {
			netnstest.Enter(t)
			if got, err := f.Tables(); len(got) > 0 || err != nil {
				t.Errorf("in a new namespace there are %v, %v", got, err)
			}
			restore(t, f, "*nat", ":MINE - [0:0]", ":KUBE-SERVICES - [0:0]", "-A OUTPUT -j KUBE-SERVICES", "-A KUBE-SERVICES -j MINE")
			restore(t, f, "*filter")
			tables, err := f.Tables()
			slices.Sort(tables)
			if diff := cmp.Diff([]string{"filter", "nat"}, tables); diff != "" || err != nil {
				t.Errorf("%v, tables (-want +got):\n%s", err, diff)
			}
			s := open(t, f)
			for table, want := range map[string][]string{"nat": {"KUBE-SERVICES", "MINE"}, "filter": nil} {
				got, err := s.Chains(table)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("%s: %v, chains (-want +got):\n%s", table, err, diff)
				}
			}
		})
	}
}

func TestAChangeOfATableShowsInItsState(t *testing.T) {
	for _, f := range families {
		t.Run(f.Command, func(t *testing.T) {
			netnstest.Enter(t)
			s := open(t, f)
			state := func() Info {
				info, err := s.Info("nat")
				if err != nil {
					t.Fatal(err)
				}
				return info
			}
			before := state()
			if again := state(); again != before {
				t.Errorf("%+v becomes %+v by itself", before, again)
			}
			restore(t, f, "*nat", ":MINE - [0:0]", "-A MINE -j RETURN", "-A OUTPUT -j MINE")
			after := state()
			if added := after.Entries - before.Entries; added != 4 || after.Size <= before.Size {
				t.Errorf("%+v becomes %+v with a chain and two rules more", before, after)
			}
		})
	}
}

func TestATableThatIsNotThereIsAnError(t *testing.T) {
	netnstest.Enter(t)
	got, err := open(t, IPv4).Chains("no such table")
	if err == nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzChainNames(f *testing.F) {
	entry := func(name string) string {
		return fmt.Sprintf("ERROR\x00%s%s\x00", strings.Repeat("\x00", chainNameAt-len(chainMark)), name)
	}
	f.Add([]byte(entry("KUBE-SERVICES") + "rules" + entry("MINE") + entry("ERROR")))
	f.Add([]byte("ERROR\x00ERROR\x00"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		for _, name := range chainsIn(blob) {
			if name == "" || name == "ERROR" || strings.Contains(name, "\x00") {
				t.Errorf("name %q", name)
			}
		}
	})
}
