package configuration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sluice/internal/config"
)

func TestFlagsMatchUpstream(t *testing.T) {
	theirs := map[string]string{}
	for line := range strings.Lines(listed(t, "flags")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		theirs[name] = rest
	}
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	config.AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		ours := fmt.Sprintf("%q %q %t", f.Shorthand, f.DefValue, f.Deprecated != "")
		want, there := theirs[f.Name]
		switch {
		case f.Name == "ipvs-min-sync-period": // a known difference
		case there && ours != want:
			t.Errorf("shorthand, default and whether it is deprecated of --%s are %s, and %s with upstream", f.Name, ours, want)
		case !there && knownAs(flags("--"+f.Name+"="), difference{"", isAccepted, "unknown flag"}) == "":
			t.Errorf("upstream has no --%s", f.Name)
		}
		delete(theirs, f.Name)
	})
	delete(theirs, "version") // it sets nothing
	for name := range theirs {
		t.Errorf("there is no --%s", name)
	}
}
