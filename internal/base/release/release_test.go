package release

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The Go tool ignores a variable that it does not find: the Makefile has to name the right
// one.
func TestMakefileSetsTheVersion(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^LDFLAGS := (.*)$`).FindSubmatch(makefile)
	if flags == nil {
		t.Fatal("the Makefile has no LDFLAGS")
	}
	const version = "v1.2.3-test"
	out, err := exec.Command("go", "run", "-ldflags", strings.ReplaceAll(string(flags[1]), "$(VERSION)", version), "./testdata/print").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != version {
		t.Errorf("%v: the version is %q, want %s", err, out, version)
	}
	for _, line := range strings.Split(string(makefile), "\n") {
		if strings.Contains(line, "-ldflags") && !strings.Contains(line, "'$(LDFLAGS)'") {
			t.Errorf("this builds a program without a version: %s", line)
		}
	}
}
