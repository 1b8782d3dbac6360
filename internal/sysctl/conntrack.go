package sysctl

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// Conntrack is how the kernel should keep track of connections. What is zero
// or false stays as it is.
type Conntrack struct {
	// MaxPerCore is for how many connections there is room, for each core of the
	// machine; Min is for how many at least. Min counts only with MaxPerCore.
	MaxPerCore, Min int
	// How long a connection of which nothing is heard is remembered.
	TCPEstablished, TCPCloseWait time.Duration
	UDP, UDPStream               time.Duration
	// TCPBeLiberal accepts TCP segments that are outside the window.
	TCPBeLiberal bool
}

// Options is what Tune needs.
type Options struct {
	Conntrack Conntrack
	Logger    logr.Logger
	// Root is where proc and sys are mounted; "" for the root directory.
	Root string
}

const (
	// mostScaled bounds what the number of cores leads to: a machine of hundreds
	// of cores has no more clients because of them, and room costs memory.
	mostScaled = 1 << 20
	// perBucket is how many connections one bucket of the hash table is for.
	perBucket = 4

	netfilterDir = "proc/sys/net/netfilter"
	liberalName  = "nf_conntrack_tcp_be_liberal"
	hashsizeFile = "sys/module/nf_conntrack/parameters/hashsize"
	onlineFile   = "sys/devices/system/cpu/online"
)

// Error is a setting of the kernel that could not be made.
type Error struct {
	File   string
	Value  int // that it should have
	Remedy string
	Err    error
}

func (u *Error) Error() string {
	return fmt.Sprintf("set %s to %d: %v (%s)", u.File, u.Value, u.Err, u.Remedy)
}

func (u *Error) Unwrap() error { return u.Err }

// Apply makes the kernel's settings as they should be, and writes only those
// that are not. The errors are all *Untuned. None of them keeps the proxy from
// its work: each is of one setting, and all others are made.
func Apply(o Options) []error {
	k := files{o.Root, o.Logger}
	var errs []error
	set := func(name string, value int) {
		if value > 0 {
			errs = append(errs, k.set(filepath.Join(netfilterDir, name), value))
		}
	}
	c := &o.Conntrack
	most := k.connections(c)
	set("nf_conntrack_max", most)
	if most > 0 {
		errs = append(errs, k.growHash(most/perBucket))
	}
	set("nf_conntrack_tcp_timeout_established", seconds(c.TCPEstablished))
	set("nf_conntrack_tcp_timeout_close_wait", seconds(c.TCPCloseWait))
	if c.TCPBeLiberal {
		set(liberalName, 1)
	}
	set("nf_conntrack_udp_timeout", seconds(c.UDP))
	set("nf_conntrack_udp_timeout_stream", seconds(c.UDPStream))
	return notNil(errs)
}

// TCPIsLiberal tells whether the kernel accepts TCP segments that are outside
// the window, whoever made it do so.
func TCPIsLiberal(o Options) bool {
	value, err := files{o.Root, o.Logger}.read(filepath.Join(netfilterDir, liberalName))
	return err == nil && value != 0
}

// SetOOMScore says how willing the kernel should be to end this process when
// memory runs out, from -1000 (never) to 1000. The error is an *Untuned.
func SetOOMScore(o Options, score int) error {
	return files{o.Root, o.Logger}.set("proc/self/oom_score_adj", score)
}

func seconds(d time.Duration) int { return int(d / time.Second) }

func notNil(errs []error) []error {
	var out []error
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// files is the files's settings, as files.
type files struct {
	root string
	log  logr.Logger
}

func (k files) path(file string) string {
	return filepath.Join(cmp.Or(k.root, "/"), file)
}

func (k files) read(file string) (int, error) {
	text, err := os.ReadFile(k.path(file))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// set writes a setting unless it has the value already, which somebody with
// more rights may have seen to.
func (k files) set(file string, value int) error {
	present, err := k.read(file)
	if err == nil && present == value {
		return nil
	}
	if err == nil {
		err = k.write(file, value)
	}
	if err != nil {
		return &Error{k.path(file), value, tuneRemedy(file, value, err), reason(err)}
	}
	k.log.Info("Changed a setting of the kernel", "file", k.path(file), "from", present, "to", value)
	return nil
}

// write never creates a file: there are no settings but the kernel's.
func (k files) write(file string, value int) error {
	f, err := os.OpenFile(k.path(file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(value))
	return errors.Join(err, f.Close())
}

// growHash makes the hash table of connections larger, never smaller. There is
// one for the whole machine, and the kernel lets nobody change it from within
// a network namespace other than the first.
func (k files) growHash(buckets int) error {
	if present, err := k.read(hashsizeFile); err == nil && present >= buckets {
		return nil
	}
	return k.set(hashsizeFile, buckets)
}

// connections is for how many connections there should be room; 0 if that
// should stay as it is.
func (k files) connections(c *Conntrack) int {
	if c.MaxPerCore <= 0 {
		return 0
	}
	if scaled := c.MaxPerCore * k.cores(); scaled <= mostScaled {
		return max(scaled, c.Min)
	}
	return mostScaled // as upstream: whatever Min is
}

// cores counts the machine's cores, not those that this process may use: the
// connections are those of the machine.
func (k files) cores() int {
	text, err := os.ReadFile(k.path(onlineFile))
	if err == nil {
		if n, err := countCores(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCores reads a list as the kernel writes it, such as 0-3,8.
func countCores(list string) (int, error) {
	total := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("list of cores %q: %w", list, err)
		}
		last, err := strconv.ParseUint(to, 10, 16)
		if err != nil || last < first {
			return 0, fmt.Errorf("list of cores %q: bad range %q", list, part)
		}
		total += int(last-first) + 1
	}
	return total, nil
}

// reason is the error without the path, which an Untuned tells anyhow.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// tuneRemedy says what whoever runs the node can do about it.
func tuneRemedy(file string, value int, err error) string {
	byHand := fmt.Sprintf("or set it on the node before: echo %d > /%s", value, file)
	switch {
	case file == "proc/self/oom_score_adj":
		return "give the proxy CAP_SYS_RESOURCE, or choose a higher --oom-score-adj"
	case errors.Is(err, fs.ErrNotExist):
		return "load the module nf_conntrack, and run the proxy where proc and sys are mounted"
	case errors.Is(err, unix.EOPNOTSUPP):
		return "run the proxy in the machine's first network namespace, " + byHand
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS): // as it is in containers
		return "let a privileged init container run the proxy with --init-only, " + byHand
	}
	return byHand[len("or "):]
}
