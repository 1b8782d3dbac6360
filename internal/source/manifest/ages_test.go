package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/source"
)

// dated is a Service with a creationTimestamp.
func dated(name, clusterIP, created string) string {
	return strings.Replace(svc(name, clusterIP), "name: "+name, "name: "+name+", creationTimestamp: '"+created+"'", 1)
}

// history follows a directory step by step.
type history struct {
	*testing.T
	dir    string
	loader *loader
	state  *model.State
	now    time.Time
}

// newHistory begins an hour ago, so that no file is taken for settled.
func newHistory(t *testing.T, files ...string) *history {
	h := &history{T: t, dir: writeDir(t, files...), loader: newLoader(source.Proxy{}, maxFileSize), state: model.NewState(), now: time.Now().Add(-time.Hour)}
	h.load()
	return h
}

func (h *history) load() *Content {
	h.Helper()
	content := loadWith(h.T, h.loader, h.dir, h.now)
	h.state.Apply(&model.Dirty{}, content.Events...)
	return content
}

// loadAfter loads when some time has passed.
func (h *history) loadAfter(d time.Duration) *Content {
	h.Helper()
	h.now = h.now.Add(d)
	return h.load()
}

func (h *history) write(name, text string) {
	h.Helper()
	must(h.T, os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644))
}

func (h *history) remove(name string) {
	h.Helper()
	must(h.T, os.Remove(filepath.Join(h.dir, name)))
}

func (h *history) rename(from, to string) {
	h.Helper()
	must(h.T, os.Rename(filepath.Join(h.dir, from), filepath.Join(h.dir, to)))
}

func (h *history) service(name string) *model.Service {
	h.Helper()
	s := h.state.Service(model.Name{Namespace: "default", Name: name})
	if s == nil {
		h.Fatalf("there is no Service %s", name)
	}
	return s
}

// wantOrder wants Services to be of different ages, the oldest first.
func (h *history) wantOrder(names ...string) {
	h.Helper()
	for i := range names[1:] {
		older, younger := h.service(names[i]), h.service(names[i+1])
		if !older.Created.Before(younger.Created) {
			h.Errorf("%s is of %s, and %s of %s", older.Name, older.Created, younger.Name, younger.Created)
		}
	}
}

func TestAgesAtTheStart(t *testing.T) {
	h := newHistory(t, "a.yaml", svc("a", "10.96.0.1"), "b.yaml", svc("b", "10.96.0.2"),
		"c.yaml", dated("c", "10.96.0.3", "2025-01-01T00:00:00Z"), "d.yaml", dated("d", "10.96.0.4", "2024-01-01T00:00:00Z"),
		"e.yaml", dated("e", "10.96.0.5", "9999-12-31T00:00:00Z"))
	h.wantOrder("d", "c", "a")
	if a := h.service("a").Created; !a.Equal(h.service("b").Created) || !a.Equal(h.service("e").Created) {
		t.Error("Services that do not say when they were created differ in age")
	}
}

func TestWhatComesLaterIsYounger(t *testing.T) {
	h := newHistory(t, "m.yaml", svc("m", "10.96.0.1"), "o.yaml", dated("o", "10.96.0.2", "9999-12-31T00:00:00Z"))
	h.write("a.yaml", svc("a", "10.96.0.3"))
	h.load()
	h.write("b.yaml", dated("b", "10.96.0.4", "2020-01-01T00:00:00Z"))
	h.load()
	h.wantOrder("m", "a", "b")
	h.wantOrder("o", "a")
}

// TestAServiceKeepsItsAge changes its manifest in every way that leaves the
// Service what it is. Another one came after it.
func TestAServiceKeepsItsAge(t *testing.T) {
	web := svc("web", "10.96.0.1")
	for name, change := range map[string]func(*history){
		"nothing":                   func(*history) {},
		"edited":                    func(h *history) { h.write("m.yaml", svc("web", "10.96.0.9")) },
		"edited by way of a rename": func(h *history) { h.write("m.yaml.new", svc("web", "10.96.0.9")); h.rename("m.yaml.new", "m.yaml") },
		"moved down":                func(h *history) { h.write("m.yaml", "# moved\n---\n"+svc("x", "10.96.0.7")+"---\n"+web) },
		"file renamed":              func(h *history) { h.rename("m.yaml", "z.yaml") },
		"moved to another file":     func(h *history) { h.remove("m.yaml"); h.write("z.yaml", svc("x", "10.96.0.7")+"---\n"+web) },
		"dated":                     func(h *history) { h.write("m.yaml", dated("web", "10.96.0.1", "2020-01-01T00:00:00Z")) },
		"broken for a while":        func(h *history) { h.write("m.yaml", "kind: ["); h.load(); h.write("m.yaml", web) },
		"emptied for a moment": func(h *history) {
			h.write("m.yaml", "")
			h.load()
			h.write("m.yaml", web)
			h.now = h.now.Add(graceTime - 1)
		},
		"gone for a moment": func(h *history) {
			h.remove("m.yaml")
			h.load()
			h.write("m.yaml", web)
			h.now = h.now.Add(graceTime - 1)
		},
		"gone for a moment, and edited": func(h *history) {
			h.remove("m.yaml")
			h.load()
			h.write("m.yaml", svc("web", "10.96.0.9"))
		},
		"moved with a gap": func(h *history) { h.remove("m.yaml"); h.load(); h.write("z.yaml", web) },
		"gone for a moment, with another one in its place": func(h *history) {
			h.write("z.yaml", svc("web", "10.96.0.9"))
			h.load()
			h.remove("m.yaml")
			h.load()
			h.write("m.yaml", web)
			h.load()
			h.write("z.yaml", svc("web", "10.96.0.8"))
		},
		"copied, then removed": func(h *history) {
			h.write("z.yaml", web)
			h.load()
			h.remove("m.yaml")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "m.yaml", web)
			h.write("later.yaml", svc("later", "10.96.0.2"))
			h.load()
			created := h.service("web").Created
			change(h)
			h.load()
			if got := h.service("web").Created; !got.Equal(created) {
				t.Errorf("created at %s, and then at %s", created, got)
			}
			h.wantOrder("web", "later")
		})
	}
}

func TestAServiceThatComesBackIsNew(t *testing.T) {
	for name, again := range map[string]func(*history){
		"deleted and written again": func(h *history) {
			h.remove("m.yaml")
			h.load()
			h.write("m.yaml", svc("web", "10.96.0.1"))
			h.now = h.now.Add(graceTime)
		},
		"emptied and written again": func(h *history) {
			h.write("m.yaml", "")
			h.load()
			h.loadAfter(graceTime)
			h.write("m.yaml", svc("web", "10.96.0.1"))
			h.now = h.now.Add(graceTime)
		},
		"gone for a moment, and back as another one": func(h *history) { h.remove("m.yaml"); h.load(); h.write("z.yaml", svc("web", "10.96.0.9")) },
		"its place taken by another one of its name": func(h *history) {
			h.write("z.yaml", svc("web", "10.96.0.9"))
			h.load()
			h.remove("m.yaml")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "m.yaml", svc("web", "10.96.0.1"))
			h.write("later.yaml", svc("later", "10.96.0.2"))
			h.load()
			again(h)
			h.load()
			h.wantOrder("later", "web")
		})
	}
}

func TestNameIsNotTakenFromObjectInForce(t *testing.T) {
	first, second := svc("web", "10.96.0.1"), svc("web", "10.96.0.2")
	tests := []struct {
		name   string
		before []string // the files
		change func(*history)
		want   string
	}{
		{"by a file that goes first", []string{"m.yaml", first}, func(h *history) { h.write("a.yaml", second) }, "10.96.0.1"},
		{"by a file that says that it is older", []string{"m.yaml", first},
			func(h *history) { h.write("a.yaml", dated("web", "10.96.0.2", "2020-01-01T00:00:00Z")) }, "10.96.0.1"},
		{"by a document above it", []string{"m.yaml", first}, func(h *history) { h.write("m.yaml", second+"---\n"+first) }, "10.96.0.1"},
		{"while it moves to a file that goes last", []string{"m.yaml", first},
			func(h *history) { h.write("a.yaml", second); h.rename("m.yaml", "z.yaml") }, "10.96.0.1"},
		{"while it is edited", []string{"m.yaml", first, "z.yaml", first}, func(h *history) { h.write("m.yaml", second) }, "10.96.0.2"},
		{"until it is gone", []string{"m.yaml", first, "z.yaml", second}, func(h *history) { h.remove("m.yaml") }, "10.96.0.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory(t, tt.before...)
			tt.change(h)
			h.load()
			h.load()
			if got := h.service("web").ClusterIPs[0].String(); got != tt.want {
				t.Errorf("the Service has %s, want %s", got, tt.want)
			}
		})
	}
}

// TestAtTheStartTheFirstFileDecides, for nothing is in force yet.
func TestAtTheStartTheFirstFileDecides(t *testing.T) {
	h := newHistory(t, "m.yaml", svc("web", "10.96.0.1"))
	h.write("a.yaml", svc("web", "10.96.0.2"))
	h.load()
	fresh, err := Load(h.dir, source.Proxy{})
	must(t, err)
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.2")}, fresh.Events, values); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
