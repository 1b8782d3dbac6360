//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Very many files, and very many documents that are none, cost bounded memory, and news in another
// file do not wait for them.
func TestManyFilesHoldUpNobody(t *testing.T) {
	t.Parallel()
	const bound = 128 << 20
	files := testkit.Extent(2_000, 10_000, 100_000)
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
	settle(t, p, dir, 0)
	address, turn := netip.MustParseAddrPort("10.96.0.1:80"), 0
	news := func() time.Duration { // how long until they are in force
		t.Helper()
		turn++
		pod := []string{"pod1", "pod2"}[turn%2]
		manifests := strings.ReplaceAll(goodManifests, "10.244.1.1", hostAddr(t, l, pod).String())
		began := time.Now()
		write(t, dir, "good.yaml", manifests, 0)
		eventually(t, func() bool {
			return l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: address}).By == pod
		})
		return time.Since(began)
	}
	best := func() time.Duration { return min(news(), news(), news()) }
	alone := best()

	began, mark := time.Now(), p.Log().Len()
	write(t, dir, "wrong.yaml", strings.Repeat("---\na: 1\n", 200_000), 0)
	write(t, dir, "empty.yaml", strings.Repeat("---\n", 2_000_000), 0)
	settle(t, p, dir, mark)
	wrong := time.Since(began)
	besideWrong := best()

	many := filepath.Join(t.TempDir(), "many")
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("f%d.yaml", i)), []byte("# nothing\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	began, mark = time.Now(), p.Log().Len()
	if err := os.Rename(many, filepath.Join(dir, "many")); err != nil {
		t.Fatal(err)
	}
	settle(t, p, dir, mark)
	read := time.Since(began)
	besideMany := best()

	t.Logf("news take %v, %v beside 200,000 wrong documents (read in %v), %v beside %d files (read in %v); at most %d MiB",
		alone, besideWrong, wrong, besideMany, files, read, peak(t, p.PID())>>20)
	// Those of other files are not read again.
	if limit := testkit.Scaled(10*alone + 100*time.Millisecond); besideWrong > limit || besideMany > limit {
		t.Errorf("news take %v, and beside others %v and %v", alone, besideWrong, besideMany)
	}
	if most := peak(t, p.PID()); most > bound {
		t.Errorf("the proxy took %d MiB, want %d or less", most>>20, bound>>20)
	}
}

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := peakMemory.FindSubmatch(text)
	if found == nil {
		t.Fatalf("the kernel does not tell:\n%s", text)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
