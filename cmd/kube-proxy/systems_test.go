package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"sluice/internal/testkit"
)

// The program compiles for macOS; make lint looks at what it is on Windows. Types of all packages are
// checked from source, and function bodies in ours only: a compiler would take minutes for the libraries.
// make systems does run one.
func TestMacOS(t *testing.T) {
	testkit.NotShort(t, "it checks the types of all libraries")
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // nearly all of it is needed to the end
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS=darwin", "GOARCH=arm64")
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Env:       env,
		ParseFile: parse,
	}, ours(t, env)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, e := range p.Errors {
			t.Error(e)
		}
	}
}

func parse(files *token.FileSet, name string, source []byte) (*ast.File, error) {
	return parser.ParseFile(files, name, source, parser.SkipObjectResolution)
}

// ours returns the packages of Sluice that the program consists of.
func ours(t *testing.T, env []string) (out []string) {
	t.Helper()
	roots, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps, Env: env}, ".")
	if err != nil {
		t.Fatal(err)
	}
	packages.Visit(roots, nil, func(p *packages.Package) {
		if strings.HasPrefix(p.PkgPath, "sluice/") {
			out = append(out, p.PkgPath)
		}
	})
	if len(out) < 20 {
		t.Fatalf("only %v are part of the program", out)
	}
	return out
}
