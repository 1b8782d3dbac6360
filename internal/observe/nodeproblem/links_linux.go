package nodeproblem

import (
	"errors"

	"golang.org/x/sys/unix"
)

// links are whether interfaces are idle: they do not exist, are down, or have no link, as a
// bridge without ports. Each is asked for once.
type links map[string]bool

func (l links) idle(name string) bool {
	idle, known := l[name]
	if !known {
		idle = isIdle(name)
		l[name] = idle
	}
	return idle
}

// isIdle reports whether an interface cannot have packets. What cannot be found out may have some.
func isIdle(name string) bool {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return errors.Is(err, unix.ENODEV)
	}
	return request.Uint16()&unix.IFF_RUNNING == 0
}
