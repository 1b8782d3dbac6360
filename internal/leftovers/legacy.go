package leftovers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	driver "sluice/internal/iptables"
	"sluice/internal/xtables"
)

// ErrNoProgram says that there are chains of legacy iptables, and nothing to
// remove them with.
var ErrNoProgram = errors.New("the programs of legacy iptables are not installed here")

// removeLegacy removes the chains that kube-proxy made by iptables-legacy.
func removeLegacy(ctx context.Context, log logr.Logger, names chainNames) error {
	var errs []error
	for _, family := range []*xtables.Family{xtables.IPv4, xtables.IPv6} {
		affected, err := affectedTables(family, names)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(affected) == 0 {
			continue
		}
		programs, err := findPrograms(ctx, family.Command, exec.LookPath)
		if err != nil {
			errs = append(errs, fmt.Errorf("tables %s of legacy %s: %w; run kube-proxy --cleanup on the node where %s-legacy-save is installed, as in the image of the earlier kube-proxy, or start the node again",
				strings.Join(affected, ", "), family.Command, err, family.Command))
			continue
		}
		for _, table := range affected {
			if err := programs.clean(ctx, log, table, names); err != nil {
				errs = append(errs, fmt.Errorf("table %s of legacy %s: %w", table, family.Command, err))
			}
		}
	}
	return errors.Join(errs...)
}

// affectedTables are the tables that have chains with these names.
func affectedTables(family *xtables.Family, names chainNames) (out []string, err error) {
	read, err := family.ReadAll(tables...)
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		if t := read[table]; t != nil && slices.ContainsFunc(t.Chains, names.has) {
			out = append(out, table)
		}
	}
	return out, nil
}

// programs are those that read and write the tables of one family.
type programs struct {
	command, save, restore string
}

// findPrograms prefers programs that are named legacy. Those without it in the
// name are of either kind, and say which; before version 1.8 there was one
// kind only.
func findPrograms(ctx context.Context, command string, look func(string) (string, error)) (*programs, error) {
	for _, prefix := range []string{command + "-legacy", command} {
		save, err := look(prefix + "-save")
		if err != nil {
			continue
		}
		restore, err := look(prefix + "-restore")
		if err != nil {
			continue
		}
		version, err := exec.CommandContext(ctx, save, "--version").Output()
		if err != nil || bytes.Contains(version, []byte("nf_tables")) {
			continue
		}
		return &programs{command, save, restore}, nil
	}
	return nil, ErrNoProgram
}

// clean removes kube-proxy's chains from one table.
func (p *programs) clean(ctx context.Context, log logr.Logger, table string, names chainNames) error {
	listing, err := run(exec.CommandContext(ctx, p.save, "-t", table))
	if err != nil {
		return err
	}
	rules, lines, err := parseListing(listing, table)
	if err != nil {
		return fmt.Errorf("run %s: %w", p.save, err)
	}
	r := choose(rules, names)
	tellKept(log, p.command, table, r.kept)
	if r.empty() {
		return nil
	}
	restore := exec.CommandContext(ctx, p.restore, "--noflush", "--wait=5")
	restore.Stdin = strings.NewReader(deletions(table, &r, lines))
	if _, err := run(restore); err != nil {
		return err
	}
	log.Info("Removed the chains of an earlier kube-proxy", "command", p.command, "table", table,
		"chains", len(r.chains), "kind", "iptables-legacy")
	return nil
}

func run(cmd *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", cmd.Path, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// parseListing reads what iptables-save wrote of one table. A jump's rule is
// the index of its line among those that are returned.
func parseListing(listing []byte, table string) (rules ruleset, lines []string, err error) {
	rules.base = map[string]bool{}
	err = driver.ScanListing(listing, table,
		func(name []byte, builtin bool) { rules.base[string(name)] = builtin },
		func(chain, line []byte) {
			words := bytes.Fields(line)
			if len(words) < 4 {
				return
			}
			// A jump into a chain has no options, so it ends the line.
			if how := string(words[len(words)-2]); how == "-j" || how == "-g" {
				rules.jumps = append(rules.jumps, jump{string(chain), string(words[len(words)-1]), len(lines)})
				lines = append(lines, strings.TrimSuffix(string(line), "\n"))
			}
		})
	return rules, lines, err
}

// deletions is what iptables-restore has to be told. To name a chain empties it.
func deletions(table string, r *removal, lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", table)
	for _, chain := range r.chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	for _, j := range r.rules {
		fmt.Fprintf(&b, "-D%s\n", strings.TrimPrefix(lines[j.rule], "-A"))
	}
	for _, chain := range r.chains {
		fmt.Fprintf(&b, "-X %s\n", chain)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
