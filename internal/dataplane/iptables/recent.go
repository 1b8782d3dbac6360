package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// recentDir is the directory with a file for each list of the match recent, in the
// network namespace of the thread.
const recentDir = "/proc/thread-self/net/xt_recent"

// remembered returns how long a client stays on a list, 0 if it is not on it, and its
// line in the list.
func remembered(list string, client netip.Addr, seconds uint32) (line string, left time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(recentDir, list))
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("read which clients are remembered: %w", err)
	}
	line, seen := findClient(string(text), client)
	if line == "" {
		return "", 0, nil
	}
	now, err := readJiffies()
	if err != nil {
		return "", 0, err
	}
	whole := time.Duration(seconds) * time.Second
	return line, min(whole, max(0, whole-now.since(seen))), nil
}

// findClient finds the line of a client, and when it was last seen, in jiffies.
func findClient(text string, client netip.Addr) (line string, seen uint64) {
	for line := range strings.Lines(text) {
		address, rest, _ := strings.Cut(strings.TrimPrefix(line, "src="), " ")
		if source, err := netip.ParseAddr(address); err != nil || source != client {
			continue
		}
		_, rest, _ = strings.Cut(rest, "last_seen: ")
		number, _, _ := strings.Cut(rest, " ")
		if seen, err := strconv.ParseUint(number, 10, 64); err == nil {
			return strings.TrimSpace(line), seen
		}
	}
	return "", 0
}

// jiffies is the kernel's internal clock. It is not exported, but starts at boot, five
// minutes before 2^32 jiffies (INITIAL_JIFFIES in linux/jiffies.h).
type jiffies struct {
	now uint64
	one time.Duration
}

const (
	jiffiesStart   = 1 << 32
	jiffiesAdvance = 5 * time.Minute
)

// readJiffies returns the current time. The resolution of the coarse clock is one
// jiffy.
func readJiffies() (jiffies, error) {
	var one, now unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &one); err != nil {
		return jiffies{}, fmt.Errorf("read the length of a jiffy: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return jiffies{}, fmt.Errorf("read the kernel's time: %w", err)
	}
	j := jiffies{one: time.Duration(one.Nano())}
	j.now = jiffiesStart - uint64(jiffiesAdvance/j.one) + uint64(time.Duration(now.Nano())/j.one)
	return j, nil
}

// since is how long ago a time was; one that is a little ahead is now.
func (j jiffies) since(t uint64) time.Duration {
	if t >= j.now {
		return 0
	}
	return time.Duration(j.now-t) * j.one
}
