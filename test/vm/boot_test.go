//go:build linux && amd64

package vm

import (
	"strings"
	"testing"

	"sluice/internal/testkit"
)

func TestFailuresInGuestsAreSeen(t *testing.T) {
	testkit.NotShort(t, "it boots guests")
	cache, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := Kernels(t.Context(), cache, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	k := kernels[0]
	tests := []struct {
		name, script      string
		wantErr, wantText string
	}{
		{"program fails", `echo "it's $COLOUR"; exit 3`, "exit code 3", "it's bright red"},
		{"kernel dies", "echo c >/proc/sysrq-trigger", "ended before its program did", "Kernel panic"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := testkit.WithTimeout(t.Context(), guestTime)
			defer cancel()
			var output strings.Builder
			p := Program{Args: []string{k.busybox, "sh", "-c", test.script}, Env: []string{"COLOUR=bright red"}}
			err := Boot(ctx, k, TCG, &output, p, Program{Args: []string{k.busybox, "true"}})
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error %v, want one with %q", err, test.wantErr)
			}
			if !strings.Contains(output.String(), test.wantText) {
				t.Errorf("the guest's output lacks %q:\n%s", test.wantText, output.String())
			}
		})
	}
}

// Programs of a guest share a directory: none replaces what another one needs.
func TestFilesOfProgramsDoNotCollide(t *testing.T) {
	with := func(dir string) Program {
		return Program{Args: []string{"/bin/true"}, Files: map[string]string{"testdata": dir}}
	}
	if files, err := filesOf([]Program{with("a"), with("a")}); err != nil || files["testdata"] != "a" {
		t.Errorf("the same directory twice is %v, %v", files, err)
	}
	if _, err := filesOf([]Program{with("a"), with("b")}); err == nil || !strings.Contains(err.Error(), "both a and b as testdata") {
		t.Errorf("two directories by one name are %v", err)
	}
}
