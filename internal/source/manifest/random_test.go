package manifest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"sluice/internal/base/filewatch"
	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/source"
	"sluice/internal/testkit"
)

// mess changes the files of a directory at random.
type mess struct {
	*testing.T
	*rand.Rand
	dir   string
	sound bool     // nothing that is wrong with a file
	dirty []string // paths of which a watch would report a change
}

func (m *mess) path(name string) string {
	path := filepath.Join(m.dir, name)
	m.dirty = append(m.dirty, path)
	return path
}

func (m *mess) pick(names ...string) string { return names[m.IntN(len(names))] }

func (m *mess) file() string {
	return m.pick("a.yaml", "b.yaml", "c.yml", "sub/d.yaml", "sub/e.yaml", "sub/deep/f.yaml", "other/d.yaml")
}

// document is a random document. There are few names, so that many are there
// more than once.
func (m *mess) document() string {
	name, ip := m.pick("u", "v", "w", "x", "z"), m.IntN(250)+1
	service := fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {clusterIP: 10.96.0.%d, ports: [{port: 80}]}}", name, ip)
	slice := fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}, "+
		"addressType: IPv4, endpoints: [{addresses: [10.0.0.%d]}]}", name, name, ip)
	documents := []string{
		service,
		slice,
		fmt.Sprintf("{apiVersion: v1, kind: List, items: [%s, %s]}", service, slice),
		fmt.Sprintf("{apiVersion: v1, kind: Endpoints, metadata: {name: %s}, subsets: [{addresses: [{ip: 10.0.0.%d}, {ip: 'fd00::%d'}]}, {addresses: [{ip: 10.0.0.1}]}]}", name, ip, ip),
		fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {addresses: [{type: InternalIP, address: 192.0.2.%d}]}}", m.pick("me", "you"), ip),
		fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: %s}, spec: {cidrs: [10.%d.0.0/16]}}", name, ip),
		"{apiVersion: v1, kind: ConfigMap}",
		"# nothing",
	}
	if !m.sound {
		documents = append(documents, "kind: [", fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}}", name),
			strings.Replace(slice, "10.0.0.", "127.0.0.", 1), "# too long "+strings.Repeat("x", 2000))
	}
	return m.pick(documents...) + "\n"
}

func (m *mess) text() string {
	var documents []string
	for range m.IntN(5) {
		documents = append(documents, m.document())
	}
	return strings.Join(documents, m.pick("---\n", "---\n# further down\n"))
}

func (m *mess) write(name, text string) {
	path := m.path(name)
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		m.path(dir)
	}
	must(m.T, os.MkdirAll(filepath.Dir(path), 0o755))
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		must(m.T, os.Remove(path))
	}
	if m.sound && len(split(name, []byte(text))) == 0 { // it would look half written
		text = "{apiVersion: v1, kind: ConfigMap}\n"
	}
	must(m.T, os.WriteFile(path, []byte(text), 0o644))
}

// edit writes a file again, with a document more or less, or moved down.
func (m *mess) edit(name string) {
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		return
	}
	documents := strings.Split(string(data), "---\n")
	at := m.IntN(len(documents))
	switch m.IntN(3) {
	case 0:
		documents[at] = m.document()
	case 1:
		documents = slices.Delete(documents, at, at+1)
	case 2:
		documents = slices.Insert(documents, at, m.pick(m.document(), "# moved\n"))
	}
	m.write(name, strings.Join(documents, "---\n"))
}

// change does one thing to the directory. What cannot be done now is left.
func (m *mess) change() {
	switch m.IntN(12) {
	case 0, 1:
		m.write(m.file(), m.text())
	case 2, 3:
		if name := m.file(); m.regular(name) {
			m.edit(name)
		}
	case 4: // as an editor does it
		name := m.file()
		aside := filepath.Join(filepath.Dir(name), m.pick(".new.swp", "new~", "4913.yaml"))
		m.write(aside, m.text())
		_ = os.Rename(m.path(aside), m.path(name))
	case 5:
		_ = os.Remove(m.path(m.pick(m.file(), "link.yaml", "hard.yaml", "alias", "sub/deep")))
	case 6:
		_ = os.Rename(m.path(m.file()), m.path(m.file()))
	case 7:
		_ = os.Rename(m.path(m.pick("sub", "other", "sub/deep")), m.path(m.pick("sub", "other", "sub/deep", ".away")))
	case 8:
		_ = os.RemoveAll(m.path(m.pick("sub", "other", ".away")))
	case 9:
		_ = os.Symlink(m.pick("sub", "other", "."), m.path(m.pick("alias", "sub/alias")))
	case 10:
		_ = os.Link(filepath.Join(m.dir, m.file()), m.path("hard.yaml"))
	case 11:
		m.spoil()
	}
}

func (m *mess) regular(name string) bool {
	info, err := os.Stat(filepath.Join(m.dir, name))
	return err == nil && info.Mode().IsRegular()
}

// spoil puts something in the directory that is no file, or not all of one.
func (m *mess) spoil() {
	switch kind := m.IntN(4); {
	case m.sound:
	case kind == 0:
		_ = os.Symlink(m.file(), m.path("link.yaml"))
	case kind < 3: // a file that is being written
		text := m.text()
		m.write(m.file(), text[:m.IntN(len(text)+1)])
	default:
		path := m.path(m.file())
		_ = os.Remove(path)
		_ = testkit.MakeFIFO(path)
	}
}

// simple loads a directory without an index: everything is done
// again each time. It remembers only the contents of the files before, what was
// in force, and what went a short while ago.
type simple struct {
	limit    int64
	files    map[string]*content
	inForce  map[string]found
	gone     map[string]departed
	loads    int
	values   map[model.Event]model.Event
	problems []Problem
	objects  int
	digest   sum
}

// found is an object in a file.
type found struct {
	*object
	number int // in order of the files and of the places in them
}

// departed is an object that was in force, and until when.
type departed struct {
	found
	at time.Time
}

// content is what is used of a file.
type content struct {
	data    []byte
	sum     sum
	err     error
	good    []byte // the last content without mistakes, nil if there was none
	loss    []Problem
	partial []byte // a newer one that is not used yet, and since when it is there
	since   time.Time
}

// objects are those that a file contributes.
func (c *content) objects(e *entry) []*object {
	if c.good != nil {
		return decodeFile(e.name, c.good, source.Proxy{NodeName: "me"}, nil).objects
	}
	return decodeFile(e.name, c.data, source.Proxy{NodeName: "me"}, nil).objects
}

// refresh returns what is used of a file after it was looked at.
func (c *content) refresh(e *entry, limit int64, now time.Time) *content {
	next := &content{}
	next.data, next.sum, next.err = e.read(limit)
	problems := decodeFile(e.name, next.data, source.Proxy{NodeName: "me"}, nil).problems
	if c != nil && next.err == nil && c.err == nil && next.sum == c.sum {
		c.partial = nil
		return c
	}
	text := strings.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---|\.\.\.)$`).ReplaceAllString(string(next.data), ""))
	cut := text == "" || c != nil && strings.HasSuffix(string(c.data), "\n") && !strings.HasSuffix(string(next.data), "\n")
	if cut = cut && next.err == nil && c != nil && len(c.objects(e)) > 0; cut {
		if c.partial == nil || !slices.Equal(c.partial, next.data) {
			c.partial, c.since = append([]byte{}, next.data...), now
		}
		if now.Sub(c.since) < graceTime {
			return c
		}
	}
	if next.err == nil && !slices.ContainsFunc(problems, func(p Problem) bool { return p.Refused }) {
		next.good = append([]byte{}, next.data...)
	} else if c != nil {
		next.good = c.good
	}
	if cut {
		if lost := len(c.objects(e)) - len(next.objects(e)); lost > 0 {
			why := map[bool]string{true: "became empty", false: "ends inside a document"}[text == ""]
			next.loss = []Problem{fileProblem(e.name, "write it again, or delete it if that is meant", "it %s, which removed %s", why, printable.Count(lost, "object"))}
		}
	}
	return next
}

func (s *simple) load(t *testing.T, dir string, now time.Time) (files int) {
	listing, err := list(dir)
	must(t, err)
	last := s.files
	*s = simple{limit: s.limit, files: map[string]*content{}, inForce: s.inForce, gone: s.gone, loads: s.loads, values: map[model.Event]model.Event{}}
	var all []found
	for i := range listing.entries {
		e := &listing.entries[i]
		c := last[e.name].refresh(e, s.limit, now)
		s.files[e.name] = c
		s.digest.toggle(e.name, c.sum)
		if c.err != nil {
			s.problems = append(s.problems, e.problem(c.err))
		} else {
			s.problems = append(s.problems, decodeFile(e.name, c.data, source.Proxy{NodeName: "me"}, nil).problems...)
		}
		s.problems = append(s.problems, c.loss...)
		for _, o := range c.objects(e) {
			all = append(all, found{o, len(all)})
		}
	}
	s.choose(all, now)
	return len(listing.entries)
}

// depart replaces what was in force by what is back after a short while, and notes what is
// there no more.
func (s *simple) depart(all []found, now time.Time) {
	remains := func(o found) bool {
		return slices.ContainsFunc(all, func(f found) bool { return f.String() == o.String() && f.rank(o) < 3 })
	}
	gone, inForce := map[string]departed{}, maps.Clone(s.inForce)
	for name, d := range s.gone {
		switch {
		case now.Sub(d.at) >= graceTime:
		case remains(d.found):
			inForce[name] = d.found
		default:
			gone[name] = d
		}
	}
	for name, f := range s.inForce {
		if _, known := gone[name]; !known && !remains(f) {
			gone[name] = departed{f, now}
		}
	}
	s.gone, s.inForce = gone, inForce
}

// choose finds the definition of each object that is in force.
func (s *simple) choose(all []found, now time.Time) {
	s.depart(all, now)
	inForce := map[string]found{}
	for _, f := range all {
		best, ok := inForce[f.String()]
		last, known := s.inForce[f.String()]
		if !ok || known && f.rank(last) < best.rank(last) {
			inForce[f.String()] = f
		}
	}
	for name, f := range inForce {
		last, known := s.inForce[name]
		for i, event := range f.events {
			if set, ok := event.(model.SetService); ok {
				created := undated.Add(time.Duration(s.loads))
				if known && f.rank(last) < 3 && len(last.events) > 0 {
					created = last.events[0].(model.SetService).Created
				}
				set.Created = created // decoded for this alone
				f.events[i] = set
			}
			s.values[retraction(event)] = f.events[i]
		}
	}
	for _, f := range all {
		if used := inForce[f.String()]; used.number != f.number {
			s.problems = append(s.problems, Problem{File: f.file, Document: f.document, Line: f.line, Refused: true, Problem: model.Problem{
				Object: f.object.object(), Field: "metadata.name", Remedy: "remove one of the two or rename it",
				Reason: fmt.Sprintf("it is in %s, document %d, already, and that one is used", used.file, used.document),
			}})
		}
	}
	s.inForce, s.objects = inForce, len(inForce)
	s.loads++
}

// rank returns how closely an object continues the one in force before: in the same file and
// the same, in the same file, the same in another file, or not at all.
func (f found) rank(last found) int {
	alike := cmp.Equal(f.events, last.events, values)
	switch {
	case f.file == last.file && alike:
		return 0
	case f.file == last.file:
		return 1
	case alike:
		return 2
	}
	return 3
}

// valueSink keeps the values that are in force.
type valueSink struct {
	*testing.T
	values map[model.Event]model.Event
}

func (s *valueSink) Synced() {}

func (s *valueSink) Update(events ...model.Event) {
	for _, event := range events {
		id := event
		switch event.(type) {
		case model.DeleteService, model.DeleteSlice, model.DeleteServiceCIDR:
		default:
			id = retraction(event)
		}
		old, known := s.values[id]
		switch {
		case event != id:
			s.values[id] = event
			if known && reflect.DeepEqual(old, event) {
				s.Errorf("%v is reported without a change", event)
			}
		case known:
			delete(s.values, id)
		default:
			s.Errorf("%v is removed without being there", id)
		}
	}
}

func TestRandomChanges(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			m := &mess{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), dir: dir}
			clock := testingclock.NewFakeClock(time.Now().Add(-time.Hour)) // no file is taken for settled
			follower := New(Options{Path: dir, Proxy: source.Proxy{NodeName: "me"}, maxFileSize: 2000, Clock: clock})
			sink := &valueSink{T: t, values: map[model.Event]model.Event{}}
			want := &simple{limit: 2000}
			for step := 0; step < 60 && !t.Failed(); step++ {
				m.dirty = nil
				for range 1 + m.IntN(3) {
					m.change()
				}
				clock.Step(time.Duration(m.IntN(1500)) * time.Millisecond)
				wait, unfinished := follower.loader.graceLeft(clock.Now())
				if step == 0 || m.IntN(10) == 0 || unfinished && wait <= 0 {
					m.dirty = nil // look at all of it
				} else if m.dirty = slices.DeleteFunc(m.dirty, func(p string) bool { return !follower.listing.watch.Matters(p) }); len(m.dirty) == 0 {
					continue // nothing would be reported
				}
				slices.Sort(m.dirty)
				content, err := follower.load(&filewatch.Watcher{}, slices.Compact(m.dirty)) // as Gather returns them
				must(t, err)
				sink.Update(content.Events...)
				want.check(t, dir, sink, content, clock.Now())
				if t.Failed() {
					t.Logf("in step %d, changed: %v", step, m.dirty)
				}
			}
		})
	}
}

// check holds what was found step by step against the whole.
func (s *simple) check(t *testing.T, dir string, sink *valueSink, got *Content, now time.Time) {
	t.Helper()
	files := s.load(t, dir, now)
	if diff := cmp.Diff(s.values, sink.values, agedValues); diff != "" {
		t.Errorf("values (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(s.problems, got.Problems, values); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	if got.Files != files || got.Objects != s.objects || got.Digest != s.digest.String() {
		t.Errorf("%d files, %d objects, digest %s; want %d, %d, %s", got.Files, got.Objects, got.Digest, files, s.objects, &s.digest)
	}
}

// TestRandomChangesAreNoticed does not look at files with mistakes: which content
// was the last good one depends on when they are looked at.
func TestRandomChangesAreNoticed(t *testing.T) {
	f := newFixture(t, "m")
	must(t, os.Mkdir(f.path, 0o755))
	f.start(Options{Debounce: time.Millisecond})
	m := &mess{T: t, Rand: rand.New(rand.NewPCG(1, 2)), dir: f.path, sound: true}
	for range 100 {
		for range 1 + m.IntN(4) {
			m.change()
		}
		want := heldBy(t, f.path)
		f.eventually("the state of the directory", func() bool {
			f.sink.mu.Lock()
			defer f.sink.mu.Unlock()
			return want.admits(f.sink.state, f.sink.state.Invalid())
		})
	}
}

// held holds the content of a directory: all definitions of each value, for which of them is
// in force depends on when they were looked at.
type held struct {
	values   map[model.Event][]model.Event
	repeated int // objects that are there already
}

func heldBy(t *testing.T, dir string) held {
	t.Helper()
	listing, err := list(dir)
	must(t, err)
	h, known := held{values: map[model.Event][]model.Event{}}, map[identity]bool{}
	for i := range listing.entries {
		data, _, err := listing.entries[i].read(maxFileSize)
		must(t, err)
		for _, o := range decodeFile(listing.entries[i].name, data, source.Proxy{NodeName: "me"}, nil).objects {
			if known[o.identity] {
				h.repeated++
			}
			known[o.identity] = true
			for _, e := range o.events {
				id := retraction(e)
				h.values[id] = append(h.values[id], e)
			}
		}
	}
	return h
}

// admits reports whether a state is one that the directory can lead to.
func (h held) admits(s *model.State, refused []model.Problem) bool {
	got := all(s)
	for _, e := range got {
		if !slices.ContainsFunc(h.values[retraction(e)], func(want model.Event) bool { return cmp.Equal(want, e, values) }) {
			return false
		}
	}
	return len(got) == len(h.values) && len(refused) == h.repeated
}

// all lists what a state holds that mess can make.
func all(s *model.State) (out []model.Event) {
	for _, svc := range s.Services() {
		out = append(out, model.SetService{Service: svc})
	}
	for _, cidr := range s.ServiceCIDRs() {
		out = append(out, model.SetServiceCIDR{ServiceCIDR: cidr})
	}
	if n := s.Node(); n != nil {
		out = append(out, model.SetNode{Node: n})
	}
	for _, name := range []string{"u", "v", "w", "x", "z"} {
		for _, slice := range s.Slices(model.Name{Namespace: "default", Name: name}) {
			out = append(out, model.SetSlice{Slice: slice})
		}
	}
	return out
}

// retraction is the event that takes back what another one set, by which values are told apart.
func retraction(e model.Event) model.Event {
	switch e := e.(type) {
	case model.SetService:
		return model.DeleteService{Name: e.Name}
	case model.SetSlice:
		return model.DeleteSlice{Name: e.Name}
	case model.SetServiceCIDR:
		return model.DeleteServiceCIDR{Name: e.Name}
	}
	return model.SetNode{}
}
