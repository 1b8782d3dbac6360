//go:build linux

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

	"sluice/internal/base/inet"
	"sluice/internal/kernel/netns"
)

// ErrNotInstalled says that the commands are missing.
var ErrNotInstalled = errors.New("iptables is not installed here")

// lockWait is how many seconds a command waits for the lock of iptables.
const lockWait = 5

// Commands are the installed commands of one variant, run in one network namespace.
type Commands struct {
	Variant Variant
	save    map[inet.Family]string // paths
	restore map[inet.Family]string
	netns   int
}

func newCommands(v Variant, netns int) *Commands {
	return &Commands{Variant: v, save: map[inet.Family]string{}, restore: map[inet.Family]string{}, netns: netns}
}

// searchPath are directories to search in addition to PATH.
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

// Installed returns an error that names what is missing if no variant is installed.
// It runs no command.
func Installed() error {
	for _, infix := range []string{"-" + NFT.String(), "-" + Legacy.String(), ""} {
		if newCommands(AutoVariant, 0).find(infix) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: no iptables-restore and iptables-save", ErrNotInstalled)
}

// Find finds the commands of a variant, to be run in a network namespace; 0 is the
// caller's.
func Find(ctx context.Context, v Variant, netns int) (*Commands, error) {
	if v == AutoVariant {
		return chooseVariant(ctx, netns)
	}
	return findVariant(ctx, v, netns)
}

// findVariant finds the commands with the name of the variant, or those without a
// suffix if their version says that they are of it.
func findVariant(ctx context.Context, v Variant, netns int) (*Commands, error) {
	for _, infix := range []string{"-" + v.String(), ""} {
		c := newCommands(v, netns)
		if c.find(infix) != nil {
			continue
		}
		if infix == "" && c.versionVariant(ctx) != v {
			continue
		}
		return c, nil
	}
	return nil, fmt.Errorf("%w: no iptables-%s-restore and iptables-%s-save (install the package iptables on the node or in the image)",
		ErrNotInstalled, v, v)
}

// find looks for the commands with that infix. Those of IPv6 may be missing.
func (c *Commands) find(infix string) error {
	for _, f := range inet.Families {
		save, serr := lookPath(Command(f) + infix + "-save")
		restore, rerr := lookPath(Command(f) + infix + "-restore")
		if err := errors.Join(serr, rerr); err == nil {
			c.save[f], c.restore[f] = save, restore
		} else if f == inet.IPv4 {
			return err
		}
	}
	return nil
}

// versionVariant is the variant that a command reports. Before version 1.8 there
// was only legacy, which was not reported.
func (c *Commands) versionVariant(ctx context.Context) Variant {
	out, err := c.run(ctx, c.restore[inet.IPv4], nil, "--version")
	if err == nil && bytes.Contains(out, []byte("nf_tables")) {
		return NFT
	}
	return Legacy
}

// Path is the path of iptables-restore.
func (c *Commands) Path() string { return c.restore[inet.IPv4] }

// Has returns an error if a family's tables are not available.
func (c *Commands) Has(ctx context.Context, f inet.Family) error {
	if c.save[f] == "" {
		return fmt.Errorf("%w: no %s", ErrNotInstalled, Command(f))
	}
	_, err := c.List(ctx, Table{f, NAT})
	return err
}

// List lists a table.
func (c *Commands) List(ctx context.Context, t Table) (*Listing, error) {
	if t.Name == Mangle && c.Variant == Legacy {
		if names, err := c.legacyTables(t.Family); err == nil && !slices.Contains(names, Mangle) {
			return ParseListing(nil, Mangle)
		}
	}
	out, err := c.run(ctx, c.save[t.Family], nil, "-t", t.Name)
	if err != nil {
		return nil, fmt.Errorf("list table %s: %w", t, err)
	}
	l, err := ParseListing(out, t.Name)
	if err != nil {
		return nil, fmt.Errorf("list table %s: %w", t, err)
	}
	return l, nil
}

// legacyTables are those that exist in the kernel. Listing another one creates it,
// and every packet passes its hooks from then on.
func (c *Commands) legacyTables(f inet.Family) (names []string, err error) {
	err = netns.Do(c.netns, func() error {
		names, err = LegacyFamily(f).Tables()
		return err
	})
	return names, err
}

// Rules returns the rules of a chain as -S prints them, none if it does not exist,
// which iptables reports by its exit code.
func (c *Commands) Rules(ctx context.Context, t Table, chain string) ([]string, error) {
	out, err := c.run(ctx, strings.TrimSuffix(c.save[t.Family], "-save"), nil, "-w", strconv.Itoa(lockWait), "-t", t.Name, "-S", chain)
	if Refused(err) {
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

// Restore runs iptables-restore on a family's tables. Chains that the input does
// not name keep their rules. Each table is changed atomically.
func (c *Commands) Restore(ctx context.Context, f inet.Family, input io.Reader) error {
	if c.restore[f] == "" {
		return fmt.Errorf("%w: no %s", ErrNotInstalled, Command(f))
	}
	_, err := c.run(ctx, c.restore[f], input, "--noflush", "-w", strconv.Itoa(lockWait))
	return err
}

func (c *Commands) run(ctx context.Context, path string, input io.Reader, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
	err := netns.Do(c.netns, cmd.Run)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.As(err, &exit) || !exit.Exited():
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return nil, newCommandError(path, stderr.String(), exit.ExitCode())
}

// ErrLocked says that another process kept the lock of iptables.
var ErrLocked = errors.New("another program holds the lock of iptables, /run/xtables.lock")

// CommandError is the failure of a command.
type CommandError struct {
	Path     string
	Message  string
	ExitCode int
}

// exitResource is the exit code for a lock that was not acquired or a busy kernel.
const exitResource = 4

func newCommandError(path, stderr string, code int) error {
	e := &CommandError{path, strings.Join(strings.Fields(stderr), " "), code}
	if code == exitResource && strings.Contains(e.Message, "lock") {
		return fmt.Errorf("%w, for more than %d s: %w (find it with fuser /run/xtables.lock)", ErrLocked, lockWait, e)
	}
	return e
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %s (exit code %d)", filepath.Base(e.Path), e.Message, e.ExitCode)
}

// Refused reports whether a command failed for another reason than the lock, which
// is mostly its input.
func Refused(err error) bool {
	var e *CommandError
	return errors.As(err, &e) && !errors.Is(err, ErrLocked)
}

// RefusedLine is the number of the input line that the message names, 0 if none.
func RefusedLine(err error) int {
	var e *CommandError
	if !errors.As(err, &e) {
		return 0
	}
	_, rest, _ := strings.Cut(e.Message, "line")
	line := 0
	fmt.Sscanf(strings.TrimLeft(rest, ": "), "%d", &line)
	return line
}

// Variant is one of the two implementations of iptables.
type Variant uint8

// The variants.
const (
	AutoVariant Variant = iota // the one that other programs on the host use
	Legacy
	NFT
)

func (v Variant) String() string { return [...]string{"auto", "legacy", "nft"}[v] }

// hintChains are created by kubelet in the variant that the host uses.
var hintChains = []string{":KUBE-IPTABLES-HINT ", ":KUBE-KUBELET-CANARY "}

// chooseVariant finds the commands of the variant that the host uses: the one with
// kubelet's hints, else the one with more rules, else the default of the installed
// iptables. Rules work in either, but a host that uses both confuses administrators.
func chooseVariant(ctx context.Context, netns int) (*Commands, error) {
	legacy, lerr := findVariant(ctx, Legacy, netns)
	nft, nerr := findVariant(ctx, NFT, netns)
	switch {
	case lerr != nil && nerr != nil:
		return nil, lerr
	case lerr != nil:
		return nft, nil
	case nerr != nil:
		return legacy, nil
	}
	usedNFT, err := nft.usage(ctx)
	if err != nil {
		return nil, err
	}
	usedLegacy, err := legacy.usage(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case usedNFT.hint:
		return nft, nil
	case usedLegacy.hint, usedLegacy.rules > usedNFT.rules:
		return legacy, nil
	case usedNFT.rules > usedLegacy.rules:
		return nft, nil
	case defaultVariant(ctx) == Legacy:
		return legacy, nil
	}
	return nft, nil
}

// defaultVariant is the variant of the commands without a suffix.
func defaultVariant(ctx context.Context) Variant {
	unnamed := newCommands(AutoVariant, 0)
	if unnamed.find("") != nil {
		return NFT
	}
	return unnamed.versionVariant(ctx)
}

// usage is how much a variant is used on the host.
type usage struct {
	hint  bool
	rules int
}

func (c *Commands) usage(ctx context.Context) (usage, error) {
	var u usage
	for f := range c.save {
		out, err := c.listAll(ctx, f)
		if err != nil && !Refused(err) {
			return u, err
		}
		u.hint = u.hint || slices.ContainsFunc(hintChains, func(h string) bool { return bytes.Contains(out, []byte(h)) })
		u.rules += bytes.Count(out, []byte("\n-A "))
	}
	return u, nil
}

func (c *Commands) listAll(ctx context.Context, f inet.Family) ([]byte, error) {
	if c.Variant == Legacy {
		if names, err := c.legacyTables(f); err == nil && len(names) == 0 {
			return nil, nil
		}
	}
	return c.run(ctx, c.save[f], nil)
}
