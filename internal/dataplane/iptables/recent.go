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

// recentDir has a file for each list of clients of the match recent, in the
// network namespace of the thread.
const recentDir = "/proc/thread-self/net/xt_recent"

// remembered tells for how long yet a client is on a list, 0 if it is not, and
// what the kernel says of it.
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
	now, err := readTicks()
	if err != nil {
		return "", 0, err
	}
	whole := time.Duration(seconds) * time.Second
	return line, min(whole, max(0, whole-now.since(seen))), nil
}

// findClient finds the line of a client, and when it was last seen, in ticks.
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

// ticks is the kernel's own clock, which it does not show: it has run since the
// start of the machine, from five minutes before 2^32 ticks on
// (INITIAL_JIFFIES in linux/jiffies.h).
type ticks struct {
	now uint64
	one time.Duration
}

const (
	ticksStart   = 1 << 32
	ticksAdvance = 5 * time.Minute
)

// readTicks finds out the time in ticks. The coarse clock goes by ticks, and so
// tells how long one is.
func readTicks() (ticks, error) {
	var one, now unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &one); err != nil {
		return ticks{}, fmt.Errorf("find out how long the kernel's ticks are: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return ticks{}, fmt.Errorf("find out the kernel's time: %w", err)
	}
	t := ticks{one: time.Duration(one.Nano())}
	t.now = ticksStart - uint64(ticksAdvance/t.one) + uint64(time.Duration(now.Nano())/t.one)
	return t, nil
}

// since is how long ago a tick was; what is a little ahead is now.
func (t ticks) since(tick uint64) time.Duration {
	if tick >= t.now {
		return 0
	}
	return time.Duration(t.now-tick) * t.one
}
