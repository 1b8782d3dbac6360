package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/netns/netnstest"
)

const (
	maxFile         = netfilterDir + "/nf_conntrack_max"
	establishedFile = netfilterDir + "/nf_conntrack_tcp_timeout_established"
	closeWaitFile   = netfilterDir + "/nf_conntrack_tcp_timeout_close_wait"
	liberalFile     = netfilterDir + "/" + liberalName
	udpFile         = netfilterDir + "/nf_conntrack_udp_timeout"
	streamFile      = netfilterDir + "/nf_conntrack_udp_timeout_stream"
	oomFile         = "proc/self/oom_score_adj"
)

// machine is a directory with the settings of a machine of four cores.
func machine(t *testing.T, changes map[string]string) string {
	t.Helper()
	files := map[string]string{
		maxFile: "65536", hashsizeFile: "16384", onlineFile: "0-3",
		establishedFile: "432000", closeWaitFile: "60", liberalFile: "0", udpFile: "30", streamFile: "120",
		oomFile: "0",
	}
	for file, text := range changes {
		files[file] = text
	}
	root := t.TempDir()
	for file, text := range files {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// settings reads back what is not the zero of the machine above.
func settings(t *testing.T, root string, files ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		out[file] = strings.TrimSpace(string(text))
	}
	return out
}

func TestApplyConntrack(t *testing.T) {
	tests := []struct {
		name    string
		machine map[string]string
		in      Conntrack
		want    map[string]string
	}{
		{"nothing", nil, Conntrack{}, map[string]string{
			maxFile: "65536", hashsizeFile: "16384", establishedFile: "432000", closeWaitFile: "60", liberalFile: "0", udpFile: "30", streamFile: "120",
		}},
		{"everything", nil, Conntrack{
			MaxPerCore: 32768, Min: 1, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
			UDP: 45 * time.Second, UDPStream: 90*time.Second + time.Millisecond, TCPBeLiberal: true,
		}, map[string]string{
			maxFile: "131072", hashsizeFile: "32768", establishedFile: "86400", closeWaitFile: "3600", liberalFile: "1", udpFile: "45", streamFile: "90",
		}},
		{"room for few cores", nil, Conntrack{MaxPerCore: 1000, Min: 131072}, map[string]string{maxFile: "131072", hashsizeFile: "32768"}},
		{"a minimum alone", nil, Conntrack{Min: 131072}, map[string]string{maxFile: "65536", hashsizeFile: "16384"}},
		{"room for many cores", map[string]string{onlineFile: "0-127"}, Conntrack{MaxPerCore: 32768, Min: 131072}, map[string]string{maxFile: "1048576", hashsizeFile: "262144"}},
		{"a minimum above all, which does not count where the cores lead to the most", map[string]string{onlineFile: "0-127"},
			Conntrack{MaxPerCore: 32768, Min: 2 << 20}, map[string]string{maxFile: "1048576", hashsizeFile: "262144"}},
		{"a minimum above all, which counts where they do not", map[string]string{onlineFile: "0-3"},
			Conntrack{MaxPerCore: 32768, Min: 2 << 20}, map[string]string{maxFile: "2097152", hashsizeFile: "524288"}},
		{"as many as there can be by cores, and a minimum", map[string]string{onlineFile: "0-31"},
			Conntrack{MaxPerCore: 32768, Min: 2 << 20}, map[string]string{maxFile: "2097152", hashsizeFile: "524288"}},
		{"less room than there is", map[string]string{maxFile: "262144", hashsizeFile: "65536"}, Conntrack{MaxPerCore: 32768}, map[string]string{maxFile: "131072", hashsizeFile: "65536"}},
		{"liberal before", map[string]string{liberalFile: "1"}, Conntrack{}, map[string]string{liberalFile: "1"}},
		{"less than a second", nil, Conntrack{UDP: time.Millisecond}, map[string]string{udpFile: "30"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := machine(t, tt.machine)
			if errs := Apply(Options{Conntrack: tt.in, Logger: testr.New(t), Root: root}); errs != nil {
				t.Fatal(errs)
			}
			var files []string
			for file := range tt.want {
				files = append(files, file)
			}
			if diff := cmp.Diff(tt.want, settings(t, root, files...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTCPIsLiberal(t *testing.T) {
	tests := []struct {
		name string
		file string
		want bool
	}{
		{"by default", "0", false},
		{"made so", "1", true},
		{"unreadable", "much", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := machine(t, map[string]string{liberalFile: tt.file})
			if got := TCPIsLiberal(Options{Root: root}); got != tt.want {
				t.Errorf("liberal: %v", got)
			}
		})
	}
}

func TestUnchangedSettingsAreNotWritten(t *testing.T) {
	root := machine(t, map[string]string{maxFile: "131072", hashsizeFile: "32768", establishedFile: "86400", oomFile: "-999"})
	old := time.Unix(10_000, 0)
	files := []string{maxFile, hashsizeFile, establishedFile, oomFile}
	for _, file := range files {
		if err := os.Chtimes(filepath.Join(root, file), old, old); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Root: root, Logger: logr.Discard(), Conntrack: Conntrack{MaxPerCore: 32768, TCPEstablished: 24 * time.Hour}}
	if errs := Apply(o); errs != nil {
		t.Fatal(errs)
	}
	if err := SetOOMScore(o, -999); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(old) {
			t.Errorf("%s was written", file)
		}
	}
}

func TestOneErrorDoesNotStopTheOthers(t *testing.T) {
	root := machine(t, nil)
	missing := filepath.Join(root, establishedFile)
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	errs := Apply(Options{Root: root, Logger: logr.Discard(), Conntrack: Conntrack{
		MaxPerCore: 32768, TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour,
	}})
	if len(errs) != 1 {
		t.Fatalf("errors: %v", errs)
	}
	var failed *Error
	if !errors.As(errs[0], &failed) || failed.File != missing || failed.Value != 86400 || !errors.Is(errs[0], fs.ErrNotExist) {
		t.Errorf("error: %v", errs[0])
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a setting that the kernel does not have was created: %v", err)
	}
	want := map[string]string{maxFile: "131072", closeWaitFile: "3600"}
	if diff := cmp.Diff(want, settings(t, root, maxFile, closeWaitFile)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemedies(t *testing.T) {
	tests := []struct {
		name string
		file string
		err  error
		want string
	}{
		{"read-only sys", hashsizeFile, unix.EROFS, "let a privileged init container run the proxy with --init-only, or set it on the node before: echo 7 > /" + hashsizeFile},
		{"read-only proc", maxFile, unix.EROFS, "let a privileged init container run the proxy with --init-only, or set it on the node before: echo 7 > /" + maxFile},
		{"no rights", maxFile, unix.EACCES, "let a privileged init container run the proxy with --init-only, or set it on the node before: echo 7 > /" + maxFile},
		{"another network namespace", hashsizeFile, unix.EOPNOTSUPP, "run the proxy in the machine's first network namespace, or set it on the node before: echo 7 > /" + hashsizeFile},
		{"no conntrack", maxFile, unix.ENOENT, "load the module nf_conntrack, and run the proxy where proc and sys are mounted"},
		{"a protected process", oomFile, unix.EACCES, "give the proxy CAP_SYS_RESOURCE, or choose a higher --oom-score-adj"},
		{"anything else", maxFile, unix.EINVAL, "set it on the node before: echo 7 > /" + maxFile},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := remedy(tt.file, 7, &fs.PathError{Op: "open", Path: "x", Err: tt.err}); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestSetOOMScore(t *testing.T) {
	root := machine(t, nil)
	o := Options{Root: root, Logger: logr.Discard()}
	if err := SetOOMScore(o, -999); err != nil {
		t.Fatal(err)
	}
	if got := settings(t, root, oomFile)[oomFile]; got != "-999" {
		t.Errorf("score is %s", got)
	}
}

func TestCountCores(t *testing.T) {
	tests := []struct {
		in   string
		want int
	}{
		{"0", 1}, {"0-3", 4}, {"0-3,8", 5}, {"0,2,4-5", 4}, {"0-65535", math.MaxUint16 + 1},
		{"", 0}, {"0-", 0}, {"3-1", 0}, {"0-99999999", 0}, {"a", 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q", tt.in), func(t *testing.T) {
			got, err := countCores(tt.in)
			if got != tt.want || (err == nil) != (tt.want > 0) {
				t.Errorf("got %d, %v; want %d", got, err, tt.want)
			}
		})
	}
}

// In a network namespace of its own, a process may set what belongs to the
// namespace, and not what belongs to the machine.
func TestApplyToTheRealKernel(t *testing.T) {
	netnstest.Enter(t)
	k := Options{Logger: logr.Discard()}
	buckets, err := k.read(hashsizeFile)
	if err != nil {
		t.Fatal(err)
	}
	most, err := k.read(maxFile)
	if err != nil {
		t.Fatal(err)
	}
	errs := Apply(Options{Logger: testr.New(t), Conntrack: Conntrack{
		MaxPerCore: 1, Min: max(most, buckets*perBucket) + perBucket,
		TCPEstablished: 1234 * time.Second, TCPBeLiberal: true, UDP: 77 * time.Second,
	}})
	var refused []string
	for _, err := range errs {
		var failed *Error
		if !errors.As(err, &failed) {
			t.Fatalf("error: %v", err)
		}
		refused = append(refused, failed.File)
	}
	if diff := cmp.Diff([]string{"/" + maxFile, "/" + hashsizeFile}, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s\n%v", diff, errs)
	}
	if !TCPIsLiberal(Options{}) {
		t.Error("the kernel was made liberal, and is not taken for it")
	}
	want := map[string]string{establishedFile: "1234", liberalFile: "1", udpFile: "77"}
	if diff := cmp.Diff(want, settings(t, "/", establishedFile, liberalFile, udpFile)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
