package kubectl

import (
	"flag"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/testkit"
)

var update = flag.Bool("update", false, "write the table of flags in the documentation")

func TestFlagsAreDocumented(t *testing.T) {
	root := (&plugin{}).newCommand()
	testkit.FlagTable(t, "../../../docs/commands.md", "kubectl sluice", *update, append([]*cobra.Command{root}, root.Commands()...),
		func(*pflag.Flag) bool { return true })
}
