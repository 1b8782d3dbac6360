//go:build linux

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/internal/base/inet"
)

// ErrNoLegacy says that there are chains of legacy iptables, and no commands to
// remove them.
var ErrNoLegacy = errors.New("the programs of legacy iptables are not installed here")

func (o *RemoveOptions) removeLegacy(ctx context.Context, f inet.Family) error {
	names, err := o.affectedTables(f)
	if err != nil || len(names) == 0 {
		return err
	}
	commands, err := findVariant(ctx, Legacy, 0)
	if err != nil || commands.save[f] == "" {
		return fmt.Errorf("tables %s of legacy %s: %w; run kube-proxy --cleanup on the node where %s-legacy-save is installed, as in the image of the earlier kube-proxy, or start the node again",
			strings.Join(names, ", "), Command(f), ErrNoLegacy, Command(f))
	}
	var errs []error
	for _, name := range names {
		if err := o.removeLegacyTable(ctx, commands, Table{f, name}); err != nil {
			errs = append(errs, fmt.Errorf("table %s of legacy %s: %w", name, Command(f), err))
		}
	}
	return errors.Join(errs...)
}

// affectedTables are the tables that have chains of the set. Reading them from the
// kernel needs no commands, and creates no tables.
func (o *RemoveOptions) affectedTables(f inet.Family) (names []string, err error) {
	read, err := LegacyFamily(f).ReadAll(TableNames...)
	if err != nil {
		return nil, err
	}
	for _, name := range TableNames {
		if t := read[name]; t != nil && slices.ContainsFunc(t.Chains, o.Chains.Has) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (o *RemoveOptions) removeLegacyTable(ctx context.Context, commands *Commands, t Table) error {
	text, err := commands.run(ctx, commands.save[t.Family], nil, "-t", t.Name)
	if err != nil {
		return err
	}
	found, err := parseJumps(text, t.Name)
	if err != nil {
		return fmt.Errorf("run %s: %w", commands.save[t.Family], err)
	}
	r := choose(found, o.Chains)
	if !r.empty() {
		if err := commands.Restore(ctx, t.Family, r.input(t.Name).Reader()); err != nil {
			return err
		}
	}
	r.log(o.Logger, Legacy, t)
	return nil
}

// parseJumps parses the output of iptables-save for one table.
func parseJumps(text []byte, table string) (found jumps, err error) {
	found.builtin = map[string]bool{}
	err = scanListing(text, table,
		func(name []byte, builtin bool) { found.builtin[string(name)] = builtin },
		func(chain, line []byte) {
			words := bytes.Fields(line)
			if len(words) < 4 {
				return
			}
			// A jump into a chain has no options, so it ends the line.
			if how := string(words[len(words)-2]); how == "-j" || how == "-g" {
				found.rules = append(found.rules, jump{
					from: string(chain), to: string(words[len(words)-1]), text: string(line[len("-A ") : len(line)-1]),
				})
			}
		})
	return found, err
}

// input makes the input that removes from a table what was found.
func (r *removal) input(table string) *Input {
	in := &Input{Table: table, Remove: r.chains}
	for _, j := range r.rules {
		in.Delete = append(in.Delete, j.text)
	}
	return in
}
