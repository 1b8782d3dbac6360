package sysctl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Conntrack configures connection tracking. Zero fields leave a setting as it
// is.
type Conntrack struct {
	// MaxPerCore is the maximum number of connections for each core of the
	// machine, and Min the minimum of the result. Min is used only with
	// MaxPerCore.
	MaxPerCore, Min int
	// Timeouts of idle connections.
	TCPEstablished, TCPCloseWait time.Duration
	UDP, UDPStream               time.Duration
	// TCPBeLiberal accepts TCP segments that are outside the window.
	TCPBeLiberal bool
}

const (
	// maxScaled bounds what the number of cores leads to: a machine with
	// hundreds of cores has no more clients because of them, and table space
	// costs memory.
	maxScaled = 1 << 20
	// perBucket is the number of connections per bucket of the hash table.
	perBucket = 4

	netfilterDir = "proc/sys/net/netfilter"
	liberalName  = "nf_conntrack_tcp_be_liberal"
	hashsizeFile = "sys/module/nf_conntrack/parameters/hashsize"
	onlineFile   = "sys/devices/system/cpu/online"
)

// Apply applies the settings, and writes only those that differ. All errors are
// of type *Error. None of them keeps the proxy from working: each is about one
// setting, and all others are applied.
func Apply(o Options) []error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	set := func(name string, value int) {
		if value > 0 {
			add(o.set(filepath.Join(netfilterDir, name), value))
		}
	}
	c := &o.Conntrack
	most := o.connections(c)
	set("nf_conntrack_max", most)
	if most > 0 {
		add(o.growHash(most / perBucket))
	}
	set("nf_conntrack_tcp_timeout_established", seconds(c.TCPEstablished))
	set("nf_conntrack_tcp_timeout_close_wait", seconds(c.TCPCloseWait))
	if c.TCPBeLiberal {
		set(liberalName, 1)
	}
	set("nf_conntrack_udp_timeout", seconds(c.UDP))
	set("nf_conntrack_udp_timeout_stream", seconds(c.UDPStream))
	return errs
}

// TCPIsLiberal reports whether the kernel accepts TCP segments that are outside
// the window.
func TCPIsLiberal(o Options) bool {
	value, err := o.read(filepath.Join(netfilterDir, liberalName))
	return err == nil && value != 0
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// growHash enlarges the hash table of connections, and never shrinks it. It
// belongs to the whole machine, and the kernel only lets the initial network
// namespace change it.
func (o Options) growHash(buckets int) error {
	if present, err := o.read(hashsizeFile); err == nil && present >= buckets {
		return nil
	}
	return o.set(hashsizeFile, buckets)
}

// connections returns the maximum number of connections to set, 0 to leave it
// as it is.
func (o Options) connections(c *Conntrack) int {
	if c.MaxPerCore <= 0 {
		return 0
	}
	if scaled := c.MaxPerCore * o.cores(); scaled <= maxScaled {
		return max(scaled, c.Min)
	}
	return maxScaled // as upstream: whatever Min is
}

// cores returns the number of the machine's cores, not of those that this
// process may use: the connections are those of the machine.
func (o Options) cores() int {
	text, err := os.ReadFile(o.path(onlineFile))
	if err == nil {
		if n, err := countCores(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCores parses a CPU list as the kernel writes it, such as 0-3,8.
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
