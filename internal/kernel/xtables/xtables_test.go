//go:build linux

package xtables

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/kernel/netns/netnstest"
)

var families = []*Family{IPv4, IPv6}

// restore writes to a table with iptables-legacy.
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

func TestReadTablesAndChains(t *testing.T) {
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
				got, err := s.Read(table)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(got.Chains)
				if diff := cmp.Diff(want, got.Chains); diff != "" {
					t.Errorf("%s: chains (-want +got):\n%s", table, diff)
				}
			}
		})
	}
}

func TestInfoChangesWithTheTable(t *testing.T) {
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

// Counters do not change the checksum, and any other change does, even one of the same size.
func TestChecksumChangesWithTheTable(t *testing.T) {
	for _, f := range families {
		t.Run(f.Command, func(t *testing.T) {
			netnstest.Enter(t)
			restore(t, f, "*nat", ":MINE - [0:0]", "-A MINE -p tcp -m tcp --dport 1 -j RETURN", "-A OUTPUT -j MINE")
			s, seed := open(t, f), maphash.MakeSeed()
			sum := func() uint64 {
				n, err := s.Checksum("nat", seed)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := sum()
			restore(t, f, "*nat", ":MINE - [7:700]", "[5:500] -A MINE -p tcp -m tcp --dport 1 -j RETURN")
			if got := sum(); got != before {
				t.Errorf("counters make %x %x", before, got)
			}
			restore(t, f, "*nat", ":MINE - [0:0]", "-A MINE -p tcp -m tcp --dport 2 -j RETURN")
			if sum() == before {
				t.Error("another port does not show")
			}
		})
	}
}

func TestMissingTableIsAnError(t *testing.T) {
	netnstest.Enter(t)
	got, err := open(t, IPv4).Read("no such table")
	if err == nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// Verdicts, jumps and extensions are read as iptables-legacy wrote them.
func TestReadRules(t *testing.T) {
	for _, f := range families {
		t.Run(f.Command, func(t *testing.T) {
			netnstest.Enter(t)
			restore(t, f, "*filter", ":FORWARD DROP [0:0]", ":INPUT ACCEPT [0:0]", ":MINE - [0:0]", ":EMPTY - [0:0]",
				"-A FORWARD -p tcp -j MINE", "-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT", "-A FORWARD",
				"-A INPUT -i lo -g EMPTY", "-A MINE -j RETURN", "-A MINE -j DROP", "-A OUTPUT -j ACCEPT")
			restore(t, f, "*mangle", ":MARKING - [0:0]", "-A MARKING -j MARK --set-xmark 0x40/0x4f")
			s := open(t, f)
			filter, err := s.Read("filter")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]bool{"INPUT": false, "FORWARD": true, "OUTPUT": false}, filter.Builtin); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			var got []string
			for _, r := range filter.Rules {
				names := ""
				for _, m := range r.Matches {
					names += m.Name
				}
				got = append(got, fmt.Sprintf("%s any=%t [%s] accepts=%t jump=%s", r.Chain, r.AnyPacket, names, r.Accepts, r.Jump))
			}
			want := []string{
				"INPUT any=false [] accepts=false jump=EMPTY",
				"FORWARD any=false [] accepts=false jump=MINE",
				"FORWARD any=true [conntrack] accepts=true jump=",
				"FORWARD any=true [] accepts=false jump=",
				"OUTPUT any=true [] accepts=true jump=",
				"MINE any=true [] accepts=false jump=",
				"MINE any=true [] accepts=false jump=",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			mangle, err := s.Read("mangle")
			if err != nil || len(mangle.Rules) != 1 {
				t.Fatalf("%+v, %v", mangle, err)
			}
			info := binary.NativeEndian.AppendUint32(nil, 0x40)
			wantTarget := Extension{"MARK", 2, binary.NativeEndian.AppendUint32(info, 0x4f)}
			if diff := cmp.Diff(wantTarget, mangle.Rules[0].Target); diff != "" {
				t.Errorf("target (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzTables(f *testing.F) {
	f.Add([]byte(strings.Repeat("\x00", 200)), uint32(0))
	f.Add(slices.Concat(make([]byte, 88), []byte{112, 0, 144, 0}, make([]byte, 60)), uint32(1))
	f.Fuzz(func(t *testing.T, blob []byte, hook uint32) {
		for _, family := range families {
			info := Info{ValidHooks: hook, Hooks: [5]uint32{hook}, Underflows: [5]uint32{hook}}
			table, err := family.parse(info, blob)
			if err == nil && len(table.Rules) > len(blob)/extensionLen {
				t.Errorf("%d rules in %d bytes", len(table.Rules), len(blob))
			}
		}
	})
}
