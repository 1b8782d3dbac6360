package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/mode"
)

const root = "../.."

// pkg is what the go command knows of a package.
type pkg struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, patterns ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,GoFiles,Imports,Deps"}, patterns...)...)
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, complaint.Bytes())
	}
	var pkgs []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// forTests starts the list of packages that are not part of the product.
const forTests = "For tests,"

// documented are the packages in docs/architecture.md, from the top down, and
// those for tests.
func documented(t *testing.T) (product, tests []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `((?:cmd|internal)/[a-z/-]+)` \\|")
	names := func(text string) (out []string) {
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			out = append(out, "sluice/"+m[1])
		}
		return out
	}
	above, below, found := strings.Cut(string(text), forTests)
	if !found {
		t.Fatalf("docs/architecture.md lacks %q", forTests)
	}
	return names(above), names(below)
}

func TestImportsPointDown(t *testing.T) {
	order, tests := documented(t)
	for _, p := range list(t, "./cmd/...", "./internal/...") {
		at := slices.Index(order, p.ImportPath)
		if slices.Contains(tests, p.ImportPath) {
			continue
		}
		if at < 0 {
			t.Errorf("%s is not in the list of docs/architecture.md: add a row where it belongs", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if to := slices.Index(order, imported); to >= 0 && to < at {
				t.Errorf("%s imports %s, which is above it in docs/architecture.md", p.ImportPath, imported)
			}
			if slices.Contains(tests, imported) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imported)
			}
		}
	}
}

// The dataplanes depend on the values of plan only, and so do the packages that
// compute and keep them.
func TestNoKubernetesAPIBelowSources(t *testing.T) {
	for _, p := range list(t, "./internal/dataplane/...", "./internal/engine", "./internal/plan", "./internal/model") {
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/") && !strings.HasPrefix(dep, "k8s.io/utils/") {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
			if strings.HasPrefix(dep, "sluice/internal/source") {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
		}
	}
}

// mayImport is which folders of internal each of them may import besides itself: what is not here never
// happens. Plan knows no kernel, drivers of the kernel know no Services, modes know neither who
// observes nor who asks, and sources see no rules.
var mayImport = map[string]string{
	"base":      "",
	"model":     "base",
	"plan":      "base model",
	"kernel":    "base",
	"source":    "base model",
	"dataplane": "base kernel model plan",
	"engine":    "base dataplane model plan",
	"mode":      "dataplane kernel",
	"config":    "base dataplane kernel mode model plan",
	"observe":   "base dataplane engine kernel model plan",
	"answer":    "base dataplane engine model observe plan source",
	"proxy":     "answer base config dataplane engine kernel mode model observe plan source",
	"cli":       "answer base config dataplane kernel mode model observe plan proxy source",
}

func TestFoldersImportWhatTheyMay(t *testing.T) {
	_, tests := documented(t)
	for _, p := range list(t, "./internal/...") {
		if slices.Contains(tests, p.ImportPath) {
			continue
		}
		name := strings.TrimPrefix(p.ImportPath, "sluice/internal/")
		from, _, _ := strings.Cut(name, "/")
		may, known := mayImport[from]
		if !known {
			t.Errorf("%s is in no folder of which it is known what it may import", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			path, ours := strings.CutPrefix(imported, "sluice/internal/")
			to, _, _ := strings.Cut(path, "/")
			if ours && to != from && !slices.Contains(strings.Fields(may), to) {
				t.Errorf("%s imports %s: %s may import %s only", p.ImportPath, imported, from, may)
			}
		}
	}
}

// The language of each mechanism in the kernel is spoken in its own package.
func TestIPTablesRulesHaveOneHome(t *testing.T) {
	homes := []string{"internal/kernel/iptables", "internal/dataplane/iptables"}
	_, tests := documented(t)
	words := regexp.MustCompile(`-[AIDjg] KUBE-|^ip6?tables(-legacy|-nft)?-(save|restore)$|^KUBE-(SVC|SEP|SERVICES)`)
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, path)
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				slices.Contains(homes, filepath.Dir(name)) || slices.Contains(tests, "sluice/"+filepath.Dir(name)) {
				return err
			}
			for _, text := range literals(t, path) {
				if words.MatchString(text) {
					t.Errorf("%s has iptables rules in it: %s", name, text)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Adding a mode is adding a package and its line in package mode: no other package
// knows which modes there are, by import or by name.
func TestModesHaveOneHome(t *testing.T) {
	const modes = "sluice/internal/dataplane/"
	homes := []string{"sluice/internal/mode"}
	var names []string
	for _, m := range mode.All {
		homes, names = append(homes, modes+m.Name), append(names, m.Name)
	}
	homes = append(homes, modes+mode.Sandbox().Name) // a flag has its name
	homes = append(homes, modes+"kernelspace")       // it is in the list on Windows
	product, _ := documented(t)
	for _, p := range list(t, "./cmd/...", "./internal/...") {
		if slices.Contains(homes, p.ImportPath) || !slices.Contains(product, p.ImportPath) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(homes[1:], imported) {
				t.Errorf("%s imports %s: let the mode's value say what is needed", p.ImportPath, imported)
			}
		}
		for _, file := range p.GoFiles {
			for _, text := range literals(t, filepath.Join(root, strings.TrimPrefix(p.ImportPath, "sluice/"), file)) {
				// The driver of a mechanism has its name.
				if slices.Contains(names, text) && !strings.HasPrefix(p.ImportPath, "sluice/internal/kernel/xtables") {
					t.Errorf("%s of %s names the mode %s", file, p.ImportPath, text)
				}
			}
		}
	}
}

// Meaning knows no mechanism, and the table that other modes build on does not know them.
func TestMechanismsAreNotNamed(t *testing.T) {
	for folder, foreign := range map[string][]string{
		"internal/model":              {"ipvs", "relay", "nftables", "iptables"},
		"internal/plan":               {"ipvs", "relay", "nftables", "iptables"},
		"internal/engine":             {"ipvs", "relay", "nftables", "iptables"},
		"internal/dataplane/nftables": {"ipvs", "relay", "userspace"},
	} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has %d files, %v", folder, len(files), err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range foreign {
				if !strings.HasSuffix(path, "_test.go") && strings.Contains(strings.ToLower(string(text)), name) {
					t.Errorf("%s names %s: say what it means, or let the mode bring it", path, name)
				}
			}
		}
	}
}

// literals are the strings in a source file.
func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			out = append(out, strings.Trim(l.Value, "`\""))
		}
		return true
	})
	return out
}

// Observers are in the picture, and learn what they need from the commit: asking
// the engine instead would return a later state.
func TestObserversUseTheCommit(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	picture := strings.Split(string(page), "```")[1]
	found := 0
	err = filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Base(filepath.Dir(path)) == "engine" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "Committed" {
				continue
			}
			found++
			receiver := strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
			if name := file.Name.Name + "." + receiver; !strings.Contains(picture, name) {
				t.Errorf("the observer %s is not in the picture of docs/architecture.md", name)
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Status", "Inspect", "Failures", "Frontend"}, s.Sel.Name) {
					t.Errorf("%s asks the engine for its %s: use the Commit", path, s.Sel.Name)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 7 {
		t.Errorf("found %d observers only: the test has holes", found)
	}
}
