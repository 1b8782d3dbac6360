//go:build linux

package lab_test

import (
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/lab"
)

// SIGHUP makes the proxy read the configuration file and the manifests again and
// log the result. It does not end it.
func TestSIGHUPReadsFilesAgain(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	file := filepath.Join(etc, "config.yaml")
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", file}})
	settle(t, p, dir, 0)
	hangup := func(want ...string) {
		t.Helper()
		mark := p.Log().Len()
		if err := p.Hangup(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			lines, _ := p.Log().From(mark)
			text := strings.Join(lines, "\n")
			for _, w := range want {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		})
	}
	const again = "SIGHUP: reading files again"
	hangup(again, file, dir, "The configuration file is unchanged", "Loaded manifests")

	mark := p.Log().Len()
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [nonsense]\n", 0)
	eventually(t, func() bool {
		lines, _ := p.Log().From(mark)
		return strings.Contains(strings.Join(lines, "\n"), "nonsense")
	})
	hangup(again, "The new configuration file is invalid", "nonsense")

	write(t, etc, "config.yaml", liveConfig+"oomScoreAdj: -998\n", 0)
	hangup(again)
	eventually(t, func() bool { return strings.Contains(configz(t, l), `"oomScoreAdj":-998`) })
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
