package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
	"sluice/internal/source"
)

func TestFilesReadElsewhereLoadTheSame(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"node.yaml":      "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n",
		"below/svc.json": `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"default"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`,
		"bad.yaml":       "kind: Service\napiVersion: v1\nmetadata: {name: x}\nspec: {nonsense: 1}\n",
		"empty.yaml":     "",
		"README.md":      "no manifest",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "device.yaml")); err != nil {
		t.Fatal(err)
	}
	want, err := Load(dir, source.Proxy{NodeName: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := ReadFiles(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got := LoadFiles(files, source.Proxy{NodeName: "n1"}, model.NewState())
	if want.Objects == 0 || len(want.Problems) == 0 {
		t.Fatalf("the directory holds %d objects and %d problems", want.Objects, len(want.Problems))
	}
	texts := func(c *Content) (out []string) {
		for _, p := range c.Problems {
			out = append(out, p.String())
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
		t.Errorf("problems of the directory (-) and of its files (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(want.Events, got.Events, values); diff != "" {
		t.Error(diff)
	}
}

func TestTooMuchToRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 60), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadFiles(dir, 120); err != nil {
		t.Errorf("120 bytes: %v", err)
	}
	if _, err := ReadFiles(dir, 119); !errors.Is(err, errTooMuch) {
		t.Errorf("119 bytes: %v, want %v", err, errTooMuch)
	}
}

func TestLoadFilesReplacesWhatIsInForce(t *testing.T) {
	known := setWeb("10.96.0.1").(model.SetService)
	known.Created = undated.Add(7)
	inForce := model.NewState()
	inForce.Apply(&model.Dirty{}, known)
	text := svc("web", "10.96.0.9") + "---\n" + strings.Replace(svc("new", "10.96.0.2"), "name: new", "name: new, creationTimestamp: '2020-01-01T00:00:00Z'", 1)
	state := model.NewState()
	state.Apply(&model.Dirty{}, LoadFiles([]File{{Name: "a.yaml", Data: []byte(text)}}, source.Proxy{}, inForce).Events...)
	web, added := state.Service(known.Name), state.Service(model.Name{Namespace: "default", Name: "new"})
	if !web.Created.Equal(known.Created) || !added.Created.After(known.Created) {
		t.Errorf("created at %s; the new one at %s", web.Created, added.Created)
	}
}
