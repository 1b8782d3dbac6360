package testkit

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagTable compares the flags of some commands that match with their table in a page of the
// documentation, between comments that name the program, and writes it there if update is set.
// A flag that several commands have in common is one row.
func FlagTable(t *testing.T, page, program string, update bool, commands []*cobra.Command, match func(*pflag.Flag) bool) {
	t.Helper()
	type row struct{ flag, meaning string }
	var rows []row
	of := map[row][]string{} // the commands that have the flag, with that meaning
	for _, cmd := range commands {
		command := "all"
		if cmd.HasParent() {
			command = "`" + cmd.Name() + "`"
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || f.Name == "output" || f.Name == "json" || !match(f) {
				return
			}
			r := row{"`--" + f.Name + "`", strings.ReplaceAll(f.Usage, "|", `\|`)}
			if f.Shorthand != "" {
				r.flag = "`-" + f.Shorthand + "`, " + r.flag
			}
			if d := f.DefValue; d != "" && d != "0" && d != "false" {
				r.meaning += " (default `" + d + "`)"
			}
			if of[r] == nil {
				rows = append(rows, r)
			}
			of[r] = append(of[r], command)
		})
	}
	var table strings.Builder
	table.WriteString("\n\n| flag | command | meaning |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", r.flag, strings.Join(of[r], ", "), r.meaning)
	}
	table.WriteString("\n")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- flags of "+program+" -->", "<!-- end -->"
	before, rest, begins := strings.Cut(string(text), begin)
	old, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no comments around the flags of %s", page, program)
	case old == table.String():
	case update:
		if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the flags of %s; run this test with -update (-page +flags):\n%s", page, program, cmp.Diff(old, table.String()))
	}
}
