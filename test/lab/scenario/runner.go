//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Options configures the run of a script.
type Options struct {
	// Mode is the proxy's mode, one of Modes.
	Mode string
	// Binary is the path of the proxy; that of package lab if empty.
	Binary string
	// Digest computes the digest by which the proxy names the content of its
	// manifest directory in its log.
	Digest func(dir string) (string, error)
	// Sample tries only one in so many flows of each line, and those less often: an
	// emulated processor makes few connections. All of them if it is below 2.
	Sample int
	// Patience is how long a check that fails is tried again, 5 s if zero. A busy
	// machine extends it.
	Timeout time.Duration
	// Logf reports what is going on.
	Logf func(format string, args ...any)
}

// pause is the time between two tries of a check.
const pause = 50 * time.Millisecond

// runner is a script on its way.
type runner struct {
	Options
	script    string // name
	lab       *lab.Lab
	work      string // directory with the archive's files
	manifests string

	mode    string // of the next start
	names   map[string][2]netip.Addr
	applied map[string]string // content by file
	flags   []string

	proxy        *lab.Proxy
	logs         []string              // of proxies that ended
	expectations []action              // since the objects last changed, each once
	stuck        map[stickyFlow]string // whom sticky flows stayed with so far
	sticking     map[stickyFlow]string // what a check under way adds to that
	sessions     map[string][]*session
	traffic      *lab.Traffic
	output       string
}

// Run runs a script in a lab of its own.
func (s *Script) Run(ctx context.Context, o Options) (err error) {
	r, err := s.newRunner(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	return r.runSteps(ctx, slices.Concat(s.steps, epilogue))
}

// newRunner makes the lab and the directories of a script. Its close removes them.
func (s *Script) newRunner(ctx context.Context, o Options) (*runner, error) {
	if _, ok := Modes[o.Mode]; !ok {
		return nil, fmt.Errorf("unknown mode %q: have %v", o.Mode, ModeNames())
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	l, err := lab.New()
	if err != nil {
		return nil, err
	}
	r := &runner{
		Options: o, script: s.Name, lab: l, mode: o.Mode,
		names: map[string][2]netip.Addr{}, applied: map[string]string{}, sessions: map[string][]*session{},
		stuck: map[stickyFlow]string{}, sticking: map[stickyFlow]string{},
		flags: []string{fmt.Sprintf("--cluster-cidr=%v,%v", lab.ClusterCIDRs[0], lab.ClusterCIDRs[1])},
	}
	if err := r.prepare(ctx, s); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// runSteps runs the steps that are for this mode, up to the first that fails.
func (r *runner) runSteps(ctx context.Context, steps []step) error {
	for _, st := range steps {
		if !st.runsIn(r.Mode) {
			continue
		}
		done := testkit.Waiting(fmt.Sprintf("%s in %s mode, line %d: %s", r.script, r.Mode, st.line, st.text))
		err := st.action.run(ctx, r)
		done()
		if err != nil {
			r.report()
			return fmt.Errorf("line %d: %s: %w", st.line, st.text, err)
		}
	}
	return nil
}

// close ends what a script that failed left running, and removes the lab.
func (r *runner) close() error {
	if r.traffic != nil {
		r.traffic.Stop()
	}
	var errs []error
	for _, group := range r.sessions {
		for _, s := range group {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, r.lab.Close())...)
}

// epilogue is how every script ends.
var epilogue = []step{
	{text: "in the end: restart", action: does(func(ctx context.Context, r *runner) error { return r.restart(ctx) })},
	{text: "in the end: again", action: does(func(ctx context.Context, r *runner) error { return r.again(ctx) })},
	{text: "in the end: remove everything", action: does(func(ctx context.Context, r *runner) error { return r.leaveNothing(ctx) })},
}

// prepare writes the archive's files and the Node object.
func (r *runner) prepare(ctx context.Context, s *Script) error {
	var err error
	if r.work, err = r.lab.TempDir(); err != nil {
		return err
	}
	if r.manifests, err = r.lab.TempDir(); err != nil {
		return err
	}
	for name, content := range s.files {
		if err := os.WriteFile(filepath.Join(r.work, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	node := nodeManifest
	if own, ok := s.files[nodeFile]; ok {
		node = own
	}
	return r.change(ctx, map[string]string{nodeFile: node}, nil)
}

// change writes and removes manifests, and waits until a running proxy has
// followed.
func (r *runner) change(ctx context.Context, write map[string]string, remove []string) error {
	r.expectations = nil
	mark := 0
	if r.proxy != nil {
		mark = r.proxy.Log().Len()
	}
	for _, name := range slices.Sorted(maps.Keys(write)) {
		if err := r.write(name, write[name]); err != nil {
			return err
		}
		r.applied[name] = write[name]
	}
	for _, name := range remove {
		if err := os.Remove(filepath.Join(r.manifests, name)); err != nil {
			return err
		}
		delete(r.applied, name)
	}
	return r.settle(ctx, mark)
}

// write puts a file into the directory in one piece: the proxy never reads half
// of it.
func (r *runner) write(name, content string) error {
	scratch := filepath.Join(r.work, "."+name)
	if err := os.WriteFile(scratch, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(scratch, filepath.Join(r.manifests, name))
}

// settle waits until a running proxy has programmed what is in the directory.
func (r *runner) settle(ctx context.Context, mark int) error {
	if r.proxy == nil {
		return nil
	}
	digest, err := r.Digest(r.manifests)
	if err != nil {
		return fmt.Errorf("digest of the manifests: %w", err)
	}
	ctx, cancel := testkit.WithTimeout(ctx, testkit.Timeout)
	defer cancel()
	return r.proxy.WaitFor(ctx, digest, mark)
}

// leaveNothing removes all objects and looks for what is left of them.
func (r *runner) leaveNothing(ctx context.Context) error {
	if err := r.change(ctx, nil, slices.Sorted(maps.Keys(r.applied))); err != nil {
		return err
	}
	return r.eventually(ctx, func() error {
		rules, err := r.kernel()
		if err != nil {
			return err
		}
		for name, pair := range r.names {
			for _, a := range pair {
				if mentions(rules, a.String()) {
					return fmt.Errorf("%v, which is %s, is still in the kernel:\n%s", a, name, rules)
				}
			}
		}
		return nil
	})
}

// mentions reports whether an address is in a text, not just as the start of a
// longer one, nor of a range.
func mentions(text, address string) bool {
	return regexp.MustCompile(`(^|[^0-9a-f.:])` + regexp.QuoteMeta(address) + `($|[^0-9a-f.:/]|/32\b|/128\b)`).MatchString(text)
}

// minTries is how often a check is tried at least: on a machine that stood
// still for a while, time may be up during the first one.
const minTries = 3

// eventually tries a check until it holds or time is up.
func (r *runner) eventually(ctx context.Context, check func() error) error {
	return r.within(ctx, r.Timeout, check)
}

// within is eventually with another timeout.
func (r *runner) within(ctx context.Context, timeout time.Duration, check func() error) error {
	start, linger, pause := time.Now(), Modes[r.Mode].Linger, pause
	for tries := 1; ; tries++ {
		err := check()
		waited := time.Since(start)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if over := waited - testkit.Scaled(timeout); tries >= minTries && over > linger {
			return err
		} else if over > 0 {
			pause = linger / 20
		}
		time.Sleep(pause)
	}
}

// report shows the logs and rules of a script that failed.
func (r *runner) report() {
	for i, log := range r.logs {
		r.Logf("log of proxy %d:\n%s", i+1, log)
	}
	if r.proxy != nil {
		r.Logf("log of the running proxy:\n%s", r.proxy.Log())
	}
	if rules, err := r.kernel(); err != nil {
		r.Logf("cannot read the kernel's rules: %v", err)
	} else {
		r.Logf("the kernel's rules:\n%s", rules)
	}
	r.Logf("the manifests:\n%s", strings.Join(slices.Sorted(maps.Keys(r.applied)), "\n"))
}
