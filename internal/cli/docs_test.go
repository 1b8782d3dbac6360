package cli

import (
	"flag"
	"testing"

	"github.com/spf13/pflag"

	"sluice/internal/testkit"
)

var update = flag.Bool("update", false, "write the table of flags in the documentation")

// The flags of the proxy itself are those of the configuration, which has a page of its own.
func TestFlagsAreDocumented(t *testing.T) {
	testkit.FlagTable(t, "../../docs/commands.md", "kube-proxy", *update, newCommand(&options{}).Commands(), func(f *pflag.Flag) bool {
		return f.Name != flagControlSocket && f.Name != flagServiceProxyName && !isOfTheProxy(f)
	})
}
