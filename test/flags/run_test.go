//go:build linux

package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/config/configtest"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// timeout is generous on a busy machine.
const timeout = 20 * time.Second

// bench holds what all processes share.
type bench struct {
	binary string
	rows   []row
	// lab is for processes without traffic: each has one of its hosts.
	lab   *lab.Lab
	hosts chan *lab.Host
	// slots limit how many processes have their own lab at a time.
	slots chan struct{}
}

func newBench(t *testing.T, binary string) *bench {
	t.Helper()
	l := lab.Start(t)
	hosts := l.Hosts()
	b := &bench{binary: binary, rows: table(), lab: l, hosts: make(chan *lab.Host, len(hosts)), slots: make(chan struct{}, 5)}
	for _, h := range hosts[2:] { // not those with the bridges
		b.hosts <- h
	}
	return b
}

// proxy is a process of a run.
type proxy struct {
	*testing.T
	bench *bench
	run   run
	lab   *lab.Lab
	host  *lab.Host
	// dir has all files of the process.
	dir            string
	byFile         bool
	api            *apiServer
	cmd            *exec.Cmd
	done           chan struct{} // closed when the process is gone
	stdout, stderr *output
	added          int // Services, since the start
}

// run starts a process with the settings of the run's rows, and checks these rows,
// and those that compare themselves with this run.
func (b *bench) run(t *testing.T, r run, byFile bool) {
	p := &proxy{T: t, bench: b, run: r, byFile: byFile, dir: tempDir(t), done: make(chan struct{}), stdout: &output{}, stderr: &output{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v\nstandard output:\n%s\nstandard error:\n%s", p.cmd, p.stdout, p.stderr)
		}
	})
	p.settleDown()
	p.writeFiles()
	p.start()
	p.waitUntilReady()
	for _, late := range []bool{false, true} {
		for _, row := range p.bench.rows {
			if row.see != nil && row.late == late {
				p.check(row)
			}
		}
	}
}

// settleDown finds a host for the process.
func (p *proxy) settleDown() {
	p.Helper()
	if !p.run.traffic {
		p.lab, p.host = p.bench.lab, <-p.bench.hosts
		p.Cleanup(func() {
			_, _ = p.host.Run(context.Background(), lab.Command{Args: []string{"nft", "flush", "ruleset"}}) // for the next one
			p.bench.hosts <- p.host
		})
		return
	}
	p.bench.slots <- struct{}{}
	p.Cleanup(func() { <-p.bench.slots })
	p.lab = lab.Start(p.T)
	host, err := p.lab.Host("node1")
	if err != nil {
		p.Fatal(err)
	}
	p.host = host
}

func (p *proxy) start() {
	p.Helper()
	p.cmd = p.mounted(p.args())
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+p.host.XtablesLock())
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.host.Do(p.cmd.Start); err != nil {
		p.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in cmd
		close(p.done)
	}()
	p.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone
		<-p.done
	})
}

// The limits of connection tracking belong to the whole machine. The process sees
// our files in their place.
const (
	conntrackMax  = "/proc/sys/net/netfilter/nf_conntrack_max"
	conntrackHash = "/sys/module/nf_conntrack/parameters/hashsize"
	untouched     = "11" // what is in our files at first
)

// mounted returns a command that runs the proxy with its own mounts.
func (p *proxy) mounted(args []string) *exec.Cmd {
	script := ""
	for name, file := range map[string]string{"max": conntrackMax, "hashsize": conntrackHash} {
		p.write(name, untouched)
		script += fmt.Sprintf("mount --bind %s %s\n", filepath.Join(p.dir, name), file)
	}
	script += "exec " + p.bench.binary + " \"$@\"\n"
	return exec.Command("unshare", append([]string{"--mount", "sh", "-ec", script, "sh"}, args...)...)
}

// settings returns what the run sets: what all do, its own settings and those of its rows.
func (p *proxy) settings() []setting {
	out := slices.Concat(always, p.run.with)
	for _, r := range p.bench.rows {
		if r.in == p.run.name && r.see != nil {
			out = append(out, r.setting)
		}
	}
	return out
}

// args returns the command line. With a configuration file, it only has what has no
// field.
func (p *proxy) args() []string {
	var args []string
	for _, s := range p.settings() {
		if s.Flag != "" && !(p.byFile && s.Field != "") {
			args = append(args, p.expand(s.Arg()))
		}
	}
	if p.byFile {
		p.writeConfig()
		args = append(args, "--config="+filepath.Join(p.dir, "config.yaml"))
	}
	return args
}

// writeConfig writes the configuration file, with changes.
func (p *proxy) writeConfig(changes ...setting) {
	p.Helper()
	p.write("config.yaml", p.expand(configtest.File(append(p.settings(), changes...)...)))
}

// expand replaces $dir by the process's directory.
func (p *proxy) expand(text string) string { return strings.ReplaceAll(text, "$dir", p.dir) }

// check checks a row, if it is about this run.
func (p *proxy) check(r row) {
	p.Helper()
	var right func(string) bool
	var want string
	switch {
	case r.onlyByFile && !p.byFile:
		return
	case r.in == p.run.name && (p.byFile || r.Flag != ""):
		right, want = func(got string) bool { return got == r.want }, r.want
	case r.against == p.run.name && p.byFile == r.onlyByFile:
		right, want = func(got string) bool { return got == r.but }, r.but
		if r.but == "" {
			right, want = func(got string) bool { return got != r.want }, "anything but "+r.want
		}
	default:
		return
	}
	got := ""
	if !p.eventually(func() bool { got = r.see(p); return right(got) }) {
		p.Errorf("%s: seen is %q, want %q", r, got, want)
	}
}

// eventually waits until a condition holds, or the process has exited.
func (p *proxy) eventually(holds func() bool) bool {
	held := false
	_ = testkit.Poll(timeout, func() error {
		ended := p.ended()
		if held = holds(); !held && !ended {
			return errors.New("not yet")
		}
		return nil
	})
	return held
}

// waitUntilReady waits until the process has finished its start, or has exited.
func (p *proxy) waitUntilReady() {
	p.Helper()
	ready := p.eventually(func() bool {
		return p.ended() || p.status(healthAddress(p), "/healthz") != none && (!p.run.traffic || by("pod3", clusterIP)(p) == "pod1")
	})
	if !ready {
		p.Fatal("the proxy does not get ready")
	}
}

func (p *proxy) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// write writes a file into the directory of the process atomically.
func (p *proxy) write(name, content string) {
	p.Helper()
	path := filepath.Join(p.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+"~", []byte(content), 0o644), os.Rename(path+"~", path))
	if err != nil {
		p.Fatal(err)
	}
}

// tempDir returns a directory whose name is short enough for a socket in it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-flags-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
