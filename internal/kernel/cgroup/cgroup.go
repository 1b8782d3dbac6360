// Package cgroup knows how much memory the container of the process may use.
package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// unlimited is less than what the kernel calls a limit if there is none.
const unlimited = 1 << 60

// MemoryLimit returns the limit of the process's memory in bytes, 0 if there is none or it is
// not known. The file system begins at root, "/" for the real one.
func MemoryLimit(root string) int64 {
	list, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0 // not Linux
	}
	var limit int64
	for line := range strings.Lines(string(list)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount := filepath.Join(root, "sys/fs/cgroup")
		switch {
		case parts[1] == "": // version 2
			limit = lower(limit, lowestMax(mount, parts[2]))
		case parts[1] == "memory": // version 1
			limit = lower(limit, hierarchicalLimit(filepath.Join(mount, "memory"), parts[2]))
		}
	}
	return limit
}

// lowestMax returns the lowest limit of a cgroup of version 2 and those above it. In a
// container these are not visible, and its own is at the top.
func lowestMax(mount, path string) (limit int64) {
	for ; ; path = filepath.Dir(path) {
		text, err := os.ReadFile(filepath.Join(mount, path, "memory.max"))
		if err == nil {
			limit = lower(limit, number(string(text)))
		}
		if path == "/" || path == "." {
			return limit
		}
	}
}

// hierarchicalLimit returns the limit of a cgroup of version 1, in which the kernel includes
// those above. In a container without a cgroup namespace the path is that on the node, and its
// cgroup is at the top.
func hierarchicalLimit(mount, path string) int64 {
	for _, dir := range []string{filepath.Join(mount, path), mount} {
		text, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "hierarchical_memory_limit "); ok {
				return number(value)
			}
		}
	}
	return 0
}

// number returns a limit, 0 for none.
func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n >= unlimited { // "max", or all that a page counter can hold
		return 0
	}
	return n
}

// lower returns the lower of two limits.
func lower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
