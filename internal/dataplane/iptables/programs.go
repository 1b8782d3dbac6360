package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/model"
	"sluice/internal/netns"
)

// Errors that say what is wrong with the host, not with a rule.
var (
	// ErrNoPrograms says that there is nothing to work with.
	ErrNoPrograms = errors.New("iptables is not installed here")
	// ErrLocked says that somebody else kept iptables busy.
	ErrLocked = errors.New("another program holds the lock of iptables, /run/xtables.lock")
)

// lockWait is how many seconds a program waits for the lock.
const lockWait = 5

// programs are the programs of one variant.
type programs struct {
	variant Variant
	save    map[model.Family]string
	restore map[model.Family]string
	netns   int
}

// searchPath is where programs are looked for besides the PATH.
var searchPath = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range searchPath {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// Installed tells whether the programs of a variant are here, and what is missing
// if not. It runs none of them.
func Installed() error {
	for _, infix := range []string{"-" + NFT.String(), "-" + Legacy.String(), ""} {
		p := &programs{save: map[model.Family]string{}, restore: map[model.Family]string{}}
		if p.find(infix) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: no iptables-restore and iptables-save", ErrNoPrograms)
}

// Restore has iptables-restore of a variant carry out its input on a family's
// tables, without touching what is not named in it.
func Restore(ctx context.Context, v Variant, f model.Family, input string) error {
	p, err := findVariant(ctx, v, 0)
	if err != nil {
		return err
	}
	if p.restore[f] == "" {
		return fmt.Errorf("%w: no %s", ErrNoPrograms, words[f].command)
	}
	return p.write(ctx, f, strings.NewReader(input))
}

// findVariant finds the programs of a variant: those that have its name, or
// those without, if they say that they are of it.
func findVariant(ctx context.Context, v Variant, netns int) (*programs, error) {
	for _, infix := range []string{"-" + v.String(), ""} {
		p := &programs{variant: v, save: map[model.Family]string{}, restore: map[model.Family]string{}, netns: netns}
		if p.find(infix) != nil {
			continue
		}
		if infix == "" && p.versionVariant(ctx) != v {
			continue
		}
		return p, nil
	}
	return nil, fmt.Errorf("%w: no iptables-%s-restore and iptables-%s-save (install the package iptables on the node or in the image)",
		ErrNoPrograms, v, v)
}

// find looks for the programs with that in their names. Those of IPv6 may be
// missing.
func (p *programs) find(infix string) error {
	for _, f := range model.Families {
		save, serr := lookPath(words[f].command + infix + "-save")
		restore, rerr := lookPath(words[f].command + infix + "-restore")
		if err := errors.Join(serr, rerr); err == nil {
			p.save[f], p.restore[f] = save, restore
		} else if f == model.IPv4 {
			return err
		}
	}
	return nil
}

// versionVariant is the variant that a program says it is of. Before version
// 1.8 there was legacy only, and it says nothing.
func (p *programs) versionVariant(ctx context.Context) Variant {
	out, err := p.run(ctx, p.restore[model.IPv4], nil, "--version")
	if err == nil && bytes.Contains(out, []byte("nf_tables")) {
		return NFT
	}
	return Legacy
}

// supportsRandomFully tells whether the programs know MASQUERADE
// --random-fully, as all do since version 1.6.2.
func (p *programs) supportsRandomFully(ctx context.Context) bool {
	out, err := p.run(ctx, p.restore[model.IPv4], nil, "--version")
	if err != nil {
		return false
	}
	_, version, _ := strings.Cut(string(out), " v")
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return true
	}
	return major*1_000_000+minor*1_000+patch >= 1_006_002
}

// has tells whether a family's tables can be had.
func (p *programs) has(ctx context.Context, f model.Family) error {
	if p.save[f] == "" {
		return fmt.Errorf("%w: no %s", ErrNoPrograms, words[f].command)
	}
	_, err := p.list(ctx, Table{f, nat})
	return err
}

// list is what iptables-save prints of a table.
func (p *programs) list(ctx context.Context, t Table) (*listing, error) {
	if t.Name == mangle && p.variant == Legacy {
		if names, err := p.legacyTables(t.Family); err == nil && !slices.Contains(names, mangle) {
			return parseListing(nil, mangle)
		}
	}
	out, err := p.run(ctx, p.save[t.Family], nil, "-t", t.Name)
	if err != nil {
		return nil, fmt.Errorf("list table %s: %w", t, err)
	}
	l, err := parseListing(out, t.Name)
	if err != nil {
		return nil, fmt.Errorf("list table %s: %w", t, err)
	}
	return l, nil
}

// legacyTables are those that the kernel has. To ask iptables for another one makes
// it, and every packet passes its hooks from then on.
func (p *programs) legacyTables(f model.Family) (names []string, err error) {
	err = netns.Do(p.netns, func() error {
		names, err = words[f].legacy.Tables()
		return err
	})
	return names, err
}

// rulesOf reads the rules of a chain. iptables tells of a chain that is not
// there by its exit code.
func (p *programs) rulesOf(ctx context.Context, t Table, chain string) ([]string, error) {
	out, err := p.run(ctx, strings.TrimSuffix(p.save[t.Family], "-save"), nil, "-w", strconv.Itoa(lockWait), "-t", t.Name, "-S", chain)
	if isFailure(err) {
		return nil, nil
	}
	var rules []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "-A ") {
			rules = append(rules, strings.TrimSuffix(line, "\n"))
		}
	}
	return rules, err
}

// write has iptables-restore carry out its input.
func (p *programs) write(ctx context.Context, f model.Family, input io.Reader) error {
	_, err := p.run(ctx, p.restore[f], input, "--noflush", "-w", strconv.Itoa(lockWait))
	return err
}

// failure is a program's refusal.
type failure struct {
	program string
	message string
	code    int
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %s (exit code %d)", filepath.Base(f.program), f.message, f.code)
}

// line is the number of the line in the input that the program names, or 0.
func (f *failure) line() int {
	_, rest, found := strings.Cut(f.message, "line")
	if !found {
		return 0
	}
	rest = strings.TrimLeft(rest, ": ")
	end := 0
	for end < len(rest) && '0' <= rest[end] && rest[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(rest[:end])
	return n
}

// Exit codes of iptables.
const exitResource = 4 // the lock could not be had, or the kernel was busy

func (p *programs) run(ctx context.Context, path string, input io.Reader, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &complaint
	err := netns.Do(p.netns, cmd.Run)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.As(err, &exit) || !exit.Exited():
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	f := &failure{path, strings.Join(strings.Fields(complaint.String()), " "), exit.ExitCode()}
	if f.code == exitResource && strings.Contains(f.message, "lock") {
		return nil, fmt.Errorf("%w, for more than %d s: %w (find it with fuser /run/xtables.lock)", ErrLocked, lockWait, f)
	}
	return nil, f
}
