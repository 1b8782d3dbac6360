package config

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) *Flags {
	t.Helper()
	f, err := tryParse(args...)
	if err != nil {
		t.Fatalf("flags %q: %v", args, err)
	}
	return f
}

func tryParse(args ...string) (*Flags, error) {
	fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	f := AddFlags(fs)
	return f, fs.Parse(args)
}

// settingsOf resolves a command line.
func settingsOf(args ...string) (*Settings, error) {
	f, err := tryParse(args...)
	if err != nil {
		return nil, err
	}
	return f.Settings()
}

func TestEveryFlagIsDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	parse(t).set.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help text", f.Name)
		}
		if !strings.Contains(string(docs), "`--"+f.Name) && f.Name != "v" {
			t.Errorf("--%s is not in docs/configuration.md", f.Name)
		}
	})
}

func TestDeprecatedFlagsNameTheirSuccessor(t *testing.T) {
	for flag, instead := range map[string]string{
		"--healthz-port=0": "--healthz-bind-address",
		"--metrics-port=0": "--metrics-bind-address",
	} {
		var out bytes.Buffer
		fs := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
		fs.SetOutput(&out)
		AddFlags(fs)
		if err := fs.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "deprecated") || !strings.Contains(out.String(), instead) {
			t.Errorf("%s says %q, want that it is deprecated, and %s", flag, out.String(), instead)
		}
	}
}
