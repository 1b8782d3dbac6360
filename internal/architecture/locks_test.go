package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// waits are the calls that take as long as the kernel, a child process or somebody else likes, by
// their full names.
var waits = regexp.MustCompile(`^\(\*sluice/internal/kernel/nfnetlink\.Conn\)\.(Do|Dump|Batch|Receive)$` +
	`|^(\(\*)?github\.com/vishvananda/netlink\.` +
	`|^\(\*os/exec\.Cmd\)\.(Run|Output|CombinedOutput|Start|Wait)$` +
	`|^\(sluice/internal/dataplane\.Dataplane\)\.(Apply|Reconcile|Repair|Verify)$` +
	`|^\(\*sluice/internal/dataplane\.Commits\)\.(Turn|WhenIdle)$` +
	`|^time\.Sleep$`)

// underLock are functions that call their last argument with a lock held.
var underLock = regexp.MustCompile(`\.(Locked|locked|WhenIdle)$`)

// starts are functions that call their argument in a goroutine, or later.
var starts = regexp.MustCompile(`^\(\*sync\.WaitGroup\)\.Go$|^(context|time)\.AfterFunc$`)

// A lock guards memory: who holds one does not wait for the kernel, so that who wants to read
// never waits for it either. What is called directly is followed through all functions, what is
// called through a value or an interface is not.
func TestNoLockAcrossIO(t *testing.T) {
	source := typecheck(t, "./internal/dataplane/...", "./internal/engine", "./internal/kernel/...")
	regions := 0
	for _, f := range source.functions {
		if strings.HasPrefix(f.pkg, "sluice/internal/kernel/") {
			continue // a socket handles one request at a time
		}
		for _, r := range f.lockedRegions() {
			regions++
			for _, c := range f.callsIn(r) {
				if path := source.pathToWait(c.callee, map[string]bool{}); path != nil {
					t.Errorf("%s: a lock is held, and the kernel waited for: %s", source.fset.Position(c.pos), strings.Join(path, " → "))
				}
			}
		}
	}
	if regions < 50 {
		t.Errorf("found %d places only where a lock is held: the test has holes", regions)
	}
}

// program is source code with its types.
type program struct {
	fset      *token.FileSet
	functions map[string]*function // by full name
}

type function struct {
	pkg  string
	body *ast.BlockStmt
	info *types.Info
}

// region is a part of a function's source.
type region struct{ from, to token.Pos }

type call struct {
	pos    token.Pos
	callee string
	expr   *ast.CallExpr
}

// pathToWait returns the functions through which one waits, nil if it does not.
func (p *program) pathToWait(name string, seen map[string]bool) []string {
	if waits.MatchString(name) {
		return []string{name}
	}
	f := p.functions[name]
	if f == nil || seen[name] {
		return nil
	}
	seen[name] = true
	for _, c := range f.callsIn(region{f.body.Pos(), f.body.End()}) {
		if path := p.pathToWait(c.callee, seen); path != nil {
			return append([]string{name}, path...)
		}
	}
	return nil
}

// callsIn returns the direct calls in a region, without those of goroutines that it starts.
func (f *function) callsIn(r region) (calls []call) {
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.CallExpr:
			name := f.callee(n)
			if name != "" && r.from < n.Pos() && n.Pos() < r.to {
				calls = append(calls, call{n.Pos(), name, n})
			}
			return !starts.MatchString(name)
		}
		return true
	})
	return calls
}

// callee returns the full name of what is called, "" if it is a value.
func (f *function) callee(c *ast.CallExpr) string {
	fun := ast.Unparen(c.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok { // of a generic function
		fun = index.X
	}
	var id *ast.Ident
	switch fun := fun.(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return ""
	}
	if called, ok := f.info.Uses[id].(*types.Func); ok {
		return called.Origin().FullName()
	}
	return ""
}

var (
	lock   = regexp.MustCompile(`^\(\*sync\.(RW)?Mutex\)\.R?Lock$`)
	unlock = regexp.MustCompile(`^\(\*sync\.(RW)?Mutex\)\.R?Unlock$`)
)

// lockedRegions returns where the function holds a lock: from Lock to the next Unlock of the same
// one, or to the end of the block that defers it, and in functions that are called under a lock.
func (f *function) lockedRegions() (regions []region) {
	all := f.callsIn(region{f.body.Pos(), f.body.End()})
	for i, c := range all {
		switch {
		case lock.MatchString(c.callee):
			regions = append(regions, region{c.expr.End(), f.unlocked(c, all[i+1:])})
		case underLock.MatchString(c.callee) && len(c.expr.Args) > 0:
			if body, ok := c.expr.Args[len(c.expr.Args)-1].(*ast.FuncLit); ok {
				regions = append(regions, region{body.Pos(), body.End()})
			}
		}
	}
	return regions
}

// unlocked returns where a lock ends.
func (f *function) unlocked(locked call, later []call) token.Pos {
	owner := func(c call) string { return types.ExprString(c.expr.Fun.(*ast.SelectorExpr).X) }
	end := f.body.End()
	deferred := map[*ast.CallExpr]bool{}
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			deferred[n.Call] = true
		case *ast.FuncLit:
			if n.Pos() < locked.pos && locked.pos < n.End() {
				end = n.End()
			}
		}
		return true
	})
	for _, c := range later {
		if c.pos < end && unlock.MatchString(c.callee) && owner(c) == owner(locked) {
			if deferred[c.expr] {
				return end
			}
			return c.pos
		}
	}
	return end
}

// typecheck reads packages, with what they import from compiled code.
func typecheck(t *testing.T, patterns ...string) *program {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Export"}, patterns...)...)
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, complaint.Bytes())
	}
	type pkg struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	var ours []pkg
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			prefix := strings.TrimSuffix("sluice"+strings.TrimPrefix(pattern, "."), "/...")
			return p.ImportPath == prefix || strings.HasPrefix(p.ImportPath, prefix+"/") && strings.HasSuffix(pattern, "...")
		}) {
			ours = append(ours, p)
		}
	}
	program := &program{fset: token.NewFileSet(), functions: map[string]*function{}}
	compiled := importer.ForCompiler(program.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range ours {
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(program.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: compiled}
		if _, err := config.Check(p.ImportPath, program.fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, d := range file.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
					program.functions[info.Defs[d.Name].(*types.Func).FullName()] = &function{p.ImportPath, d.Body, info}
				}
			}
		}
	}
	return program
}
