package manifest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/source"
	"sluice/internal/testkit"
)

// writeDir makes a directory of files, given as name and content in turn.
func writeDir(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	return dir
}

func loadWith(t *testing.T, l *loader, path string, now time.Time) *Content {
	t.Helper()
	listing, err := list(path)
	must(t, err)
	return l.all(listing.entries, now, true)
}

// digest returns the digest of what a path holds.
func digest(t *testing.T, path string) string {
	t.Helper()
	content, err := Load(path, source.Proxy{})
	must(t, err)
	return content.Digest
}

func TestLoad(t *testing.T) {
	dir := writeDir(t, "a.yaml", web, "b.yaml", webSlice)
	got, err := Load(dir, source.Proxy{})
	must(t, err)
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.1"), setWebSlice()}, got.Events, values); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Files != 2 || got.Objects != 2 || len(got.Problems) > 0 {
		t.Errorf("got %+v", got)
	}
	if _, err := Load(filepath.Join(dir, "none"), source.Proxy{}); err == nil {
		t.Error("a path that is not there can be loaded")
	}
}

func TestDigestFollowsNamesAndContents(t *testing.T) {
	base := digest(t, writeDir(t, "a.yaml", "1", "b.yaml", "2"))
	for _, tt := range []struct {
		name  string
		files []string
		same  bool
	}{
		{"the same elsewhere", []string{"a.yaml", "1", "b.yaml", "2"}, true},
		{"with a file that is not read", []string{"a.yaml", "1", "b.yaml", "2", ".c.yaml", "3", "d.txt", "4"}, true},
		{"another content", []string{"a.yaml", "1", "b.yaml", "3"}, false},
		{"another name", []string{"a.yaml", "1", "c.yaml", "2"}, false},
		{"contents exchanged", []string{"a.yaml", "2", "b.yaml", "1"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := digest(t, writeDir(t, tt.files...))
			if (got == base) != tt.same {
				t.Errorf("digests %s and %s", base, got)
			}
		})
	}
}

func TestOnlyDifferencesAreHandedOver(t *testing.T) {
	dir := writeDir(t, "a.yaml", web+"---\n"+webSlice, "b.yaml", svc("b", "10.96.0.2"), "n.yaml", "{apiVersion: v1, kind: Node, metadata: {name: me}}",
		"c.yaml", "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: c}, spec: {cidrs: [10.96.0.0/16]}}")
	l := newLoader(source.Proxy{NodeName: "me"}, maxFileSize)
	now := time.Now()
	if got := loadWith(t, l, dir, now); len(got.Events) != 5 || got.Objects != 5 {
		t.Fatalf("got %+v", got)
	}
	if got := loadWith(t, l, dir, now); got.changed || len(got.Events) > 0 || got.Objects != 5 {
		t.Errorf("nothing changed, and there is %+v", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("# moved\n"+strings.Replace(web, ".0.1", ".0.9", 1)+"---\n"+webSlice), 0o644))
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.9")}, loadWith(t, l, dir, now).Events, values); diff != "" {
		t.Errorf("one Service changed (-want +got)\n%s", diff)
	}
	for _, name := range []string{"a.yaml", "n.yaml", "c.yaml"} {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	want := []model.Event{
		model.DeleteService{Name: model.Name{Namespace: "default", Name: "web"}},
		model.DeleteSlice{Name: model.Name{Namespace: "default", Name: "web-1"}},
		model.DeleteServiceCIDR{Name: "c"},
		model.SetNode{},
	}
	if diff := cmp.Diff(want, loadWith(t, l, dir, now).Events, values); diff != "" {
		t.Errorf("files were deleted (-want +got)\n%s", diff)
	}
}

func TestFirstOfTwoEqualObjectsIsUsed(t *testing.T) {
	dir := writeDir(t, "a.yaml", svc("web", "10.96.0.1")+"---\n"+svc("web", "10.96.0.2"), "b.yaml", "# twice\n---\n"+svc("web", "10.96.0.3"))
	l := newLoader(source.Proxy{}, maxFileSize)
	got := loadWith(t, l, dir, time.Now())
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.1")}, got.Events, values); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var places []string
	for _, p := range got.Problems {
		places = append(places, p.String())
	}
	want := []string{
		"a.yaml: document 2, line 5: Service default/web: metadata.name: it is in a.yaml, document 1, already, and that one is used (remove one of the two or rename it)",
		"b.yaml: document 1, line 2: Service default/web: metadata.name: it is in a.yaml, document 1, already, and that one is used (remove one of the two or rename it)",
	}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("problems (-want +got)\n%s", diff)
	}
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	got = loadWith(t, l, dir, time.Now())
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.3")}, got.Events, values); diff != "" || len(got.Problems) > 0 {
		t.Errorf("the other takes its place (-want +got)\n%s%v", diff, got.Problems)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	tests := []struct {
		name   string
		make   func(path string) error
		reason string
	}{
		{"a file above the limit", func(p string) error { return os.WriteFile(p, make([]byte, 1001), 0o644) }, "1001 bytes"},
		{"a sparse file of 100 MB", func(p string) error {
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(p, 100<<20)
		}, "104857600 bytes"},
		{"a pipe", func(p string) error { return testkit.MakeFIFO(p) }, "not a regular file"},
		{"a socket", func(p string) error {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"})
			if err == nil {
				listener.SetUnlinkOnClose(false)
				err = listener.Close()
			}
			return err
		}, "no such device or address"},
		{"a device without an end", func(p string) error { return os.Symlink("/dev/zero", p) }, "not a regular file"},
		{"a terminal", func(p string) error { return os.Symlink("/dev/ptmx", p) }, "not a regular file"},
		{"the log of the kernel", func(p string) error { return os.Symlink("/dev/kmsg", p) }, "not a regular file"},
		{"a link to nowhere", func(p string) error { return os.Symlink("nowhere", p) }, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeDir(t, "good.yaml", web)
			must(t, tt.make(filepath.Join(dir, "bad.yaml")))
			got := loadWith(t, newLoader(source.Proxy{}, 1000), dir, time.Now())
			if len(got.Events) != 1 || len(got.Problems) != 1 {
				t.Fatalf("got %+v", got)
			}
			if p := got.Problems[0]; p.File != "bad.yaml" || !p.Refused || !strings.Contains(p.Reason, tt.reason) {
				t.Errorf("got %v, want %q", p, tt.reason)
			}
		})
	}
}

func TestLinksInCirclesAreReadOnce(t *testing.T) {
	dir := writeDir(t, "a.yaml", web)
	must(t, os.Symlink(".", filepath.Join(dir, "self")))
	must(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	got, err := Load(dir, source.Proxy{})
	must(t, err)
	if got.Files != 2 || got.Objects != 1 || len(got.Problems) != 1 || got.Problems[0].File != "loop.yaml" {
		t.Errorf("got %+v", got)
	}
}

func TestFileChangedTwiceInOneTick(t *testing.T) {
	dir := writeDir(t, "a.yaml", svc("web", "10.96.0.1"))
	l := newLoader(source.Proxy{}, maxFileSize)
	loadWith(t, l, dir, time.Now())
	// Make the identity of the new content look like that of the old one.
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(svc("web", "10.96.0.2")), 0o644))
	listing, err := list(dir)
	must(t, err)
	l.files["a.yaml"].id = fileIDOf(listing.entries[0].info)
	got := l.all(listing.entries, time.Now(), true)
	if diff := cmp.Diff([]model.Event{setWeb("10.96.0.2")}, got.Events, values); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFileLeftAloneIsNotReadAgain(t *testing.T) {
	dir := writeDir(t, "a.yaml", svc("web", "10.96.0.1"))
	l := newLoader(source.Proxy{}, maxFileSize)
	later := time.Now().Add(time.Hour)
	loadWith(t, l, dir, later)
	before := l.files["a.yaml"]
	loadWith(t, l, dir, later)
	if l.files["a.yaml"] != before {
		t.Error("the file was read again")
	}
}

func TestFileGoneSinceListingIsListedAgain(t *testing.T) {
	dir := writeDir(t, "a.yaml", web, "b.yaml", svc("b", "10.96.0.2"))
	listing, err := list(dir)
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	l := newLoader(source.Proxy{}, maxFileSize)
	if l.all(listing.entries, time.Now(), false) != nil {
		t.Error("a deleted file was not noticed")
	}
	if got := loadWith(t, l, dir, time.Now()); len(got.Events) != 1 || len(got.Problems) > 0 {
		t.Errorf("got %+v", got)
	}
}

// TestOnlyChangedDocumentsAreDecoded looks at values, which are new if a document
// was decoded.
func TestOnlyChangedDocumentsAreDecoded(t *testing.T) {
	dir := writeDir(t, "a.yaml", svc("a", "10.96.0.1")+"---\n"+svc("b", "10.96.0.2")+"---\n"+svc("c", "10.96.0.3")+"---\nkind: [\n")
	l := newLoader(source.Proxy{}, maxFileSize)
	first := loadWith(t, l, dir, time.Now())
	before := l.files["a.yaml"].objects
	must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("# moved\n---\n"+svc("b", "10.96.0.9")+"---\n"+svc("c", "10.96.0.3")+"---\nkind: [\n"), 0o644))
	got := loadWith(t, l, dir, time.Now())
	now := l.files["a.yaml"].objects
	if len(now) != 2 || now[0].events[0] == before[1].events[0] || now[1].events[0] != before[2].events[0] || now[1].document != 2 {
		t.Errorf("got %+v and %+v", *now[0], *now[1])
	}
	if len(got.Events) != 2 || len(got.Problems) != 1 || got.Problems[0].Document != 3 || got.Problems[0].Line != first.Problems[0].Line-3 {
		t.Errorf("got %v, and before %v", got, first)
	}
}

// A file of very many wrong documents costs no more than its first ones, loses none of its
// valid content, and hides no problem of another file.
func TestManyWrongDocumentsAreBounded(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "apiVersion: v1\nkind: Service\nmetadata: {name: good, namespace: default}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	put("b.yaml", good+strings.Repeat("---\na: 1\n", 20*maxWrong))
	put("a.yaml", "a: 1\n")
	content, err := Load(dir, source.Proxy{})
	if err != nil {
		t.Fatal(err)
	}
	if content.Objects != 1 || len(content.Problems) != maxProblems+1 {
		t.Errorf("there are %d objects and %d problems", content.Objects, len(content.Problems))
	}
	first, last := content.Problems[0], content.Problems[len(content.Problems)-1]
	if first.File != "a.yaml" || !strings.Contains(last.Reason, "more problems") {
		t.Errorf("the first problem is %v, the last %v", first, last)
	}
	f := decodeFile("b.yaml", []byte(strings.Repeat("---\na: 1\n", 20*maxWrong)), source.Proxy{}, nil)
	if n := len(f.documents); n > 2*maxWrong {
		t.Errorf("%d documents were decoded", n)
	}
	if p := f.problems[len(f.problems)-1]; !strings.Contains(p.Reason, "are not read") {
		t.Errorf("the last problem is %v", p)
	}
	f = decodeFile("b.yaml", []byte(strings.Repeat("---\na: 1\n", maxDocuments+1)), source.Proxy{}, nil)
	if len(f.problems) != 1 || !strings.Contains(f.problems[0].Reason, "at most 250000 are read") {
		t.Errorf("of too many documents it says %v", f.problems)
	}
}
