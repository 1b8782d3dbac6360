package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/testkit"
)

// watching is a configuration file that is followed.
type watching struct {
	t       *testing.T
	path    string
	changes chan *Update

	mu  sync.Mutex
	log []string
}

// watch follows a file that is there already, with other flags beside.
func watch(t *testing.T, path string, flags ...string) *watching {
	t.Helper()
	w := &watching{t: t, path: path, changes: make(chan *Update)}
	f := parse(t, append(flags, "--config="+path)...)
	inForce, err := f.Settings()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, inForce, WatchOptions{
			Logger: funcr.New(w.line, funcr.Options{}), Clock: clock.RealClock{},
			Changed: func(u *Update) {
				select {
				case w.changes <- u:
				case <-ctx.Done():
				}
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watching ended with %v", err)
		}
	})
	return w
}

func (w *watching) line(_, args string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, args)
}

// logged counts the lines so far that hold all of these words.
func (w *watching) logged(words ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for _, line := range w.log {
		if !missing(line, words) {
			count++
		}
	}
	return count
}

func missing(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return true
		}
	}
	return false
}

func (w *watching) waitLogged(words ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, func() error {
		if w.logged(words...) > 0 {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%q was not logged, but: %q", words, w.log)
	})
}

func (w *watching) next() *Settings {
	w.t.Helper()
	return w.nextUpdate().InForce
}

func (w *watching) nextUpdate() *Update {
	w.t.Helper()
	return testkit.Receive(w.t, w.changes, "a change of the configuration")
}

func (w *watching) wantCIDR(want string) {
	w.t.Helper()
	if got := w.next().Configuration.ClusterCIDR; got != want {
		w.t.Errorf("clusterCIDR is %s, want %s", got, want)
	}
}

// save writes a file in place.
func save(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// swap puts a new link in the place of an old one, as the kubelet does.
func swap(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
}

func cidr(n string) string { return header + "clusterCIDR: 10." + n + ".0.0/16\n" }

func TestChangedFileIsApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	w := watch(t, path)
	save(t, path, cidr("2"))
	w.wantCIDR("10.2.0.0/16")

	save(t, path+".tmp", cidr("3")) // as editors do
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
	w.wantCIDR("10.3.0.0/16")
}

func TestFlagsOverrideAChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	w := watch(t, path, "--hostname-override=flag", "--master=https://m")
	save(t, path, cidr("2")+"hostnameOverride: file\n")
	u := w.nextUpdate()
	for _, s := range []*Settings{u.Asked, u.InForce} {
		if s.HostnameOverride != "flag" || s.Client.Master != "https://m" {
			t.Errorf("name is %q and master %q", s.HostnameOverride, s.Client.Master)
		}
	}
}

func TestConfigMapIsFollowed(t *testing.T) {
	dir := t.TempDir()
	for version, n := range map[string]string{"..v1": "1", "..v2": "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		save(t, filepath.Join(dir, version, "config.conf"), cidr(n))
	}
	swap(t, "..v1", filepath.Join(dir, "..data"))
	path := filepath.Join(dir, "config.conf")
	swap(t, filepath.Join("..data", "config.conf"), path)

	w := watch(t, path)
	swap(t, "..v2", filepath.Join(dir, "..data"))
	w.wantCIDR("10.2.0.0/16")
	if err := os.RemoveAll(filepath.Join(dir, "..v1")); err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(dir, "..v2", "config.conf"), cidr("3"))
	w.wantCIDR("10.3.0.0/16")
}

func TestInvalidFileIsReportedAndIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	w := watch(t, path)
	save(t, path, header+"clusterCIDR: x\noomScoreAdj: 5000\nmode: magic\n")
	w.waitLogged("stays in force", "clusterCIDR", "oomScoreAdj", "magic")
	save(t, path, "")
	w.waitLogged("stays in force", ErrEmpty.Error())
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.waitLogged("stays in force", "no such file")

	save(t, path, cidr("1")+"# nothing new\n")
	w.waitLogged("valid again")
	save(t, path, cidr("2"))
	w.wantCIDR("10.2.0.0/16") // and not the first one again
}

func TestUnchangedFileIsNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	w := watch(t, path)
	save(t, path, cidr("1")+"# a comment\nmode: nftables\noomScoreAdj: -999\n")
	save(t, path+".other", "something else beside it")
	save(t, path, cidr("2"))
	w.wantCIDR("10.2.0.0/16")
	if n := w.logged("configuration file changed"); n != 1 {
		t.Errorf("%d changes were logged, want one", n)
	}
}

func TestUnknownFieldOfChangedFileIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1")+"clusterCidr: at-the-start\n")
	w := watch(t, path)
	save(t, path, cidr("1")+"clusterCidr: at-the-start\nmetricsAddress: new\n") // no change otherwise
	w.waitLogged("Warning", "metricsAddress", "ignored")
	save(t, path, cidr("2")+"healthAddress: newer\n")
	w.wantCIDR("10.2.0.0/16")
	w.waitLogged("Warning", "healthAddress", "ignored")
	if n := w.logged("metricsAddress"); n != 1 {
		t.Errorf("a field that is not there any more was reported %d times", n)
	}
}

func TestWatchNeedsAFile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := parse(t).Watch(ctx, nil, WatchOptions{}); err != nil {
		t.Error(err)
	}
}

// What is no regular file is refused and not waited for, and the next file is followed.
func TestPipeInPlaceOfTheFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	w := watch(t, path)
	if err := errors.Join(testkit.MakeFIFO(path+".pipe"), os.Rename(path+".pipe", path)); err != nil {
		t.Fatal(err)
	}
	w.waitLogged("stays in force", "--config "+path, "it is not a regular file")
	if _, _, err := (&Flags{}).read(path); err == nil || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("at the start: %v", err)
	}
	save(t, path+".tmp", cidr("2"))
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
	w.wantCIDR("10.2.0.0/16")
}

// A file system that hangs is reported, followed again when it answers, and holds up
// nobody who ends.
func TestHangingFileSystemIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	save(t, path, cidr("1"))
	f := parse(t, "--config="+path)
	inForce, err := f.Settings()
	if err != nil {
		t.Fatal(err)
	}
	var log testkit.Journal
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan []byte)
	noted := make(chan FileState, 10)
	changes := make(chan *Update, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- f.Watch(ctx, inForce, WatchOptions{
			Logger: log.Logger(), Clock: clk,
			Noted:   func(s FileState) { noted <- s },
			Changed: func(u *Update) { changes <- u },
			read:    func(string) ([]byte, error) { return <-answers, nil },
		})
	}()
	hang := func() FileState {
		t.Helper()
		testkit.Eventually(t, func() error {
			if !clk.HasWaiters() {
				return errors.New("the file is not being read")
			}
			clk.Step(hangsAfter)
			if len(noted) == 0 {
				return errors.New("nothing is reported")
			}
			return nil
		})
		return <-noted
	}
	if s := hang(); len(s.Refused) != 1 || !strings.Contains(s.Refused[0].Reason, "its file system does not answer") {
		t.Errorf("what is known of the file is %+v", s)
	}
	answers <- []byte(cidr("2"))
	if u := testkit.Receive(t, changes, "a change of the configuration"); u.InForce.Configuration.ClusterCIDR != "10.2.0.0/16" {
		t.Errorf("clusterCIDR is %s", u.InForce.Configuration.ClusterCIDR)
	}
	if len(log.With("valid again")) != 1 {
		t.Error("it is not logged that the file can be read again")
	}
	clk.Step(reread) // and it hangs again
	cancel()
	if err := testkit.Receive(t, ended, "the end of Watch"); err != nil {
		t.Error(err)
	}
}
