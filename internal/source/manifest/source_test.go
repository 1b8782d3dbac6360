package manifest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/base/filewatch"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

// sink keeps what a source says, as the engine would.
type sink struct {
	mu      sync.Mutex
	state   *model.State
	updates [][]model.Event
	synced  bool
}

func (s *sink) Update(events ...model.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, events)
	s.state.Apply(&model.Dirty{}, events...)
}

func (s *sink) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// services lists the Services and their first ClusterIPs.
func (s *sink) services() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, svc := range s.state.Services() {
		out[name.Name] = svc.ClusterIPs[0].String()
	}
	return out
}

func (s *sink) updated() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

// refused returns what the source reported as refused.
func (s *sink) refused() []model.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Invalid()
}

func (s *sink) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// fixture is a source with a directory of its own to follow.
type fixture struct {
	*testing.T
	dir    string // for the test to fill
	path   string // what the source reads
	sink   *sink
	source *Source

	mu  sync.Mutex
	log []string
}

// newFixture makes a directory. The source will read a path below it.
func newFixture(t *testing.T, path string) *fixture {
	t.Helper()
	dir := t.TempDir()
	return &fixture{T: t, dir: dir, path: filepath.Join(dir, path), sink: &sink{state: model.NewState()}}
}

// start runs the source until the test ends.
func (f *fixture) start(options Options) {
	f.Helper()
	options.Path, options.Proxy.NodeName = f.path, "me"
	options.Logger = funcr.New(func(_, args string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log = append(f.log, args)
	}, funcr.Options{Verbosity: 1})
	if options.reread == 0 {
		options.reread = time.Hour // only events count, unless a test wants otherwise
	}
	f.source = New(options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.source.Run(ctx, f.sink) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("Run: %v", err)
		}
	})
}

func (f *fixture) write(name, text string) {
	f.Helper()
	path := filepath.Join(f.dir, name)
	must(f.T, os.MkdirAll(filepath.Dir(path), 0o755))
	must(f.T, os.WriteFile(path, []byte(text), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logged counts the log lines that have all the parts.
func (f *fixture) logged(parts ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.log {
		has := true
		for _, p := range parts {
			has = has && strings.Contains(line, p)
		}
		if has {
			n++
		}
	}
	return n
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	testkit.Eventually(f, func() error {
		if ok() {
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("never happened: %s; Services %v, log\n%s", what, f.sink.services(), strings.Join(f.log, "\n"))
	})
}

// loaded waits until the path, as it is now, was sent to the sink, and checks that
// there are these Services.
func (f *fixture) loaded(services map[string]string) {
	f.Helper()
	want := digest(f.T, f.path)
	f.eventually("loading "+want, func() bool { return f.logged("Loaded manifests", want) > 0 })
	f.eventually("the right Services", func() bool { return cmp.Equal(services, f.sink.services()) })
}

func svc(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n", name, ip)
}

type ips = map[string]string

func TestDirectoryIsFollowed(t *testing.T) {
	f := newFixture(t, "m")
	f.write("m/a.yaml", svc("a", "10.96.0.1"))
	f.write("m/sub/b.yml", svc("b", "10.96.0.2"))
	f.write("m/.hidden.yaml", svc("hidden", "10.96.0.9"))
	f.write("m/.git/c.yaml", svc("hidden", "10.96.0.9"))
	f.write("m/readme.txt", "not a manifest")
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1", "b": "10.96.0.2"})
	f.eventually("being in sync", f.sink.isSynced)

	f.write("m/a.yaml", svc("a", "10.96.0.11"))
	f.loaded(ips{"a": "10.96.0.11", "b": "10.96.0.2"})

	f.write("m/new/deep/c.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{"clusterIP":"10.96.0.3","ports":[{"port":80}]}}`)
	f.loaded(ips{"a": "10.96.0.11", "b": "10.96.0.2", "c": "10.96.0.3"})

	// An editor writes beside the file and renames.
	f.write("m/.a.yaml.swp", svc("a", "10.96.0.12"))
	must(t, os.Rename(filepath.Join(f.path, ".a.yaml.swp"), filepath.Join(f.path, "a.yaml")))
	f.loaded(ips{"a": "10.96.0.12", "b": "10.96.0.2", "c": "10.96.0.3"})

	must(t, os.Remove(filepath.Join(f.path, "a.yaml")))
	f.loaded(ips{"b": "10.96.0.2", "c": "10.96.0.3"})

	must(t, os.RemoveAll(filepath.Join(f.path, "new")))
	f.loaded(ips{"b": "10.96.0.2"})
}

// TestSameContentAgainChangesNothing relies on the log to know that the rewritten file was
// seen: there is nothing else to see.
func TestSameContentAgainChangesNothing(t *testing.T) {
	f := newFixture(t, "m")
	f.write("m/a.yaml", svc("a", "10.96.0.1")+"---\n"+svc("b", "10.96.0.2"))
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1", "b": "10.96.0.2"})
	f.write("m/a.yaml", svc("a", "10.96.0.1")+"---\n"+svc("b", "10.96.0.2"))
	f.eventually("loading again", func() bool { return f.logged("Loaded manifests") > 1 })
	if n := f.sink.updated(); n != 1 {
		t.Errorf("%d updates, want one for both Services and none for the same again", n)
	}
}

// TestOnlyChangedPathsAreRead notifies the source of some of the files that changed.
func TestOnlyChangedPathsAreRead(t *testing.T) {
	dir, err := filepath.EvalSymlinks(writeDir(t, "a.yaml", svc("a", "10.96.0.1"), "b.yaml", svc("b", "10.96.0.2")))
	must(t, err)
	s, watcher := New(Options{Path: dir}), &filewatch.Watcher{}
	_, err = s.load(watcher, nil)
	must(t, err)
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(svc(name, "10.96.0.9")), 0o644))
	}
	for _, tt := range []struct {
		paths  []string
		events int
	}{{[]string{"a.yaml"}, 1}, {[]string{"a.yaml", ".hidden", "text"}, 0}, {[]string{"c.yaml"}, 1}, {nil, 1}} {
		var paths []string
		for _, name := range tt.paths {
			paths = append(paths, filepath.Join(dir, name))
		}
		content, err := s.load(watcher, paths)
		must(t, err)
		if len(content.Events) != tt.events {
			t.Errorf("changed %v: %v, want %d events", tt.paths, content.Events, tt.events)
		}
	}
}

// A file that goes takes none of that name in another directory along.
func TestFilesOfOneName(t *testing.T) {
	dir, err := filepath.EvalSymlinks(writeDir(t, "one/a.yaml", svc("a", "10.96.0.1"), "two/a.yaml", svc("b", "10.96.0.2")))
	must(t, err)
	s, watcher := New(Options{Path: dir}), &filewatch.Watcher{}
	_, err = s.load(watcher, nil)
	must(t, err)
	gone := filepath.Join(dir, "one", "a.yaml")
	must(t, os.Remove(gone))
	content, err := s.load(watcher, []string{gone})
	must(t, err)
	if content.Files != 1 || len(content.Events) != 1 {
		t.Errorf("%d files are left, and the events are %v", content.Files, content.Events)
	}
}

func TestSingleFileIsFollowed(t *testing.T) {
	f := newFixture(t, "services")
	f.write("services", svc("a", "10.96.0.1"))
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1"})
	f.write("tmp", svc("a", "10.96.0.2"))
	must(t, os.Rename(filepath.Join(f.dir, "tmp"), f.path))
	f.loaded(ips{"a": "10.96.0.2"})
}

// TestConfigMapVolumeIsFollowed does what the kubelet does: files are links
// through ..data, which is itself replaced by a rename.
func TestConfigMapVolumeIsFollowed(t *testing.T) {
	f := newFixture(t, "m")
	publish := func(version, ip string) {
		f.write("m/.."+version+"/a.yaml", svc("a", ip))
		must(t, os.Symlink(".."+version, filepath.Join(f.path, "..data_tmp")))
		must(t, os.Rename(filepath.Join(f.path, "..data_tmp"), filepath.Join(f.path, "..data")))
	}
	publish("1", "10.96.0.1")
	must(t, os.Symlink("..data/a.yaml", filepath.Join(f.path, "a.yaml")))
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1"})
	for i := 2; i < 6; i++ {
		publish(fmt.Sprint(i), fmt.Sprintf("10.96.0.%d", i))
		must(t, os.RemoveAll(filepath.Join(f.path, fmt.Sprintf("..%d", i-1))))
		f.loaded(ips{"a": fmt.Sprintf("10.96.0.%d", i)})
	}
}

func TestPathThatIsALinkIsFollowed(t *testing.T) {
	f := newFixture(t, "current")
	f.write("v1/a.yaml", svc("a", "10.96.0.1"))
	f.write("v2/a.yaml", svc("a", "10.96.0.2"))
	must(t, os.Symlink("v1", f.path))
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1"})
	must(t, os.Symlink("v2", filepath.Join(f.dir, "next")))
	must(t, os.Rename(filepath.Join(f.dir, "next"), f.path))
	f.loaded(ips{"a": "10.96.0.2"})
	f.write("v2/b.yaml", svc("b", "10.96.0.3"))
	f.loaded(ips{"a": "10.96.0.2", "b": "10.96.0.3"})
}

func TestDirectoryComesAndGoes(t *testing.T) {
	f := newFixture(t, "up/m")
	f.start(Options{})
	f.eventually("reporting the missing directory", func() bool { return len(f.sink.refused()) == 1 })
	if f.sink.isSynced() {
		t.Error("the sink is in sync with a directory that is not there")
	}
	f.write("stage/a.yaml", svc("a", "10.96.0.1"))
	must(t, os.Mkdir(filepath.Join(f.dir, "up"), 0o755))
	must(t, os.Rename(filepath.Join(f.dir, "stage"), f.path))
	f.loaded(ips{"a": "10.96.0.1"})
	if !f.sink.isSynced() || len(f.sink.refused()) > 0 {
		t.Errorf("not in sync, or with problems: %v", f.sink.refused())
	}

	must(t, os.Rename(filepath.Join(f.dir, "up"), filepath.Join(f.dir, "away")))
	f.eventually("reporting the missing directory again", func() bool { return len(f.sink.refused()) == 1 })
	if got := f.sink.services(); len(got) != 1 {
		t.Errorf("while the directory is away, what it held must stay: %v", got)
	}

	f.write("up/m/b.yaml", svc("b", "10.96.0.2"))
	f.loaded(ips{"b": "10.96.0.2"})
	f.write("up/m/c.yaml", svc("c", "10.96.0.3"))
	f.loaded(ips{"b": "10.96.0.2", "c": "10.96.0.3"})
}

func TestLastGoodContentStaysInForce(t *testing.T) {
	f := newFixture(t, "m")
	f.write("m/a.yaml", svc("a", "10.96.0.1")+"---\nkind: broken\n")
	f.write("m/b.yaml", svc("b", "10.96.0.2"))
	f.start(Options{})
	f.loaded(ips{"a": "10.96.0.1", "b": "10.96.0.2"}) // nothing better is known of a.yaml

	f.write("m/b.yaml", svc("b", "10.96.0.22")+"---\n"+svc("c", "10.96.0.3")+"---\nkind: broken\n")
	f.loaded(ips{"a": "10.96.0.1", "b": "10.96.0.2"})
	if problems := f.sink.refused(); len(problems) != 2 || !strings.HasPrefix(problems[1].Reason, "b.yaml: document 3, line ") {
		t.Errorf("got %v", problems)
	}

	f.write("m/a.yaml", svc("a", "10.96.0.11")) // others are not held up
	f.loaded(ips{"a": "10.96.0.11", "b": "10.96.0.2"})

	f.write("m/b.yaml", svc("b", "10.96.0.22"))
	f.loaded(ips{"a": "10.96.0.11", "b": "10.96.0.22"})
	if problems := f.sink.refused(); len(problems) > 0 {
		t.Errorf("got %v", problems)
	}

	f.write("m/b.yaml", "\x00")
	f.loaded(ips{"a": "10.96.0.11", "b": "10.96.0.22"})
	must(t, os.Remove(filepath.Join(f.path, "b.yaml")))
	f.loaded(ips{"a": "10.96.0.11"})
}

func TestProblemsAreLoggedOnce(t *testing.T) {
	f := newFixture(t, "m")
	f.write("m/a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\n")
	f.start(Options{reread: 20 * time.Millisecond})
	f.loaded(ips{})
	f.write("m/b.yaml", svc("b", "10.96.0.2"))
	f.loaded(ips{"b": "10.96.0.2"})
	if n := f.logged("Refused a manifest", "a.yaml", "set spec.clusterIP"); n != 1 {
		t.Errorf("the problem was logged %d times", n)
	}
	if n := f.logged("Skipped objects of other kinds", "ConfigMap"); n != 1 {
		t.Errorf("the skipped object was logged %d times", n)
	}
}

func TestChangesAreFoundByRereading(t *testing.T) {
	f := newFixture(t, "m")
	f.write("m/a.yaml", svc("a", "10.96.0.1"))
	f.source = New(Options{Path: f.path})
	blind := &filewatch.Watcher{}
	f.source.pass(blind, f.sink, false)
	f.write("m/a.yaml", svc("a", "10.96.0.2"))
	f.source.pass(blind, f.sink, false)
	if got := f.sink.services()["a"]; got != "10.96.0.2" {
		t.Errorf("the change was missed: %s", got)
	}
}

// Very many files are left alone for longer than it takes to read them.
func TestManyFilesAreReadLessOften(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := New(Options{Path: t.TempDir(), Clock: clk})
	if s.rest(idleShare) > 0 || s.rest(1) > 0 {
		t.Error("it rests before it has read anything")
	}
	s.effort, s.read = time.Second, clk.Now()
	for _, step := range []struct {
		after        time.Duration
		missed, idle bool // may be read, if changes were missed and without a reason
	}{{0, false, false}, {time.Second, true, false}, {idleShare * time.Second, true, true}} {
		clk.SetTime(s.read.Add(step.after))
		if missed, idle := s.rest(1) <= 0, s.rest(idleShare) <= 0; missed != step.missed || idle != step.idle {
			t.Errorf("after %v: %t and %t", step.after, missed, idle)
		}
	}
}
