package proxy

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram unmaps the pages of the program, so that only those count as memory of the process that it
// uses from then on: the initialization of all packages touches most of them, and serving few. They stay in
// the page cache while there is room, so that using one again takes a microsecond and no read.
func unmapProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var start, end uint64 // of a mapping of the program that cannot be written
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			start, end = 0, 0
			if (fields[1] == "r--p" || fields[1] == "r-xp") && strings.HasSuffix(line, " "+program) {
				from, to, _ := strings.Cut(fields[0], "-")
				start, _ = strconv.ParseUint(from, 16, 64)
				end, _ = strconv.ParseUint(to, 16, 64)
			}
		case len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0" && end > start:
			// What a linker wrote there before it was protected would be lost, but there is nothing.
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED); errno != 0 {
				return errno
			}
		}
	}
	return nil
}
