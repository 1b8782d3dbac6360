package capability

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const netAdmin = 1 << unix.CAP_NET_ADMIN

// sets are those of a process, by 32 capabilities each.
type sets [2]unix.CapUserData

func own() (header unix.CapUserHeader, s sets, err error) {
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&header, &s[0]); err != nil {
		return header, s, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return header, s, nil
}

// NetAdmin reports whether CAP_NET_ADMIN is effective.
func NetAdmin() (bool, error) {
	_, s, err := own()
	return s[0].Effective&netAdmin != 0, err
}

// Raise makes CAP_NET_ADMIN effective if the process is permitted to have it.
func Raise() error {
	header, s, err := own()
	if err != nil || s[0].Permitted&netAdmin == 0 || s[0].Effective&netAdmin != 0 {
		return err
	}
	s[0].Effective |= netAdmin
	// Capabilities belong to threads, and the runtime has several already.
	_, _, number := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&s[0])), 0)
	if number != 0 {
		return fmt.Errorf("use the permitted capability CAP_NET_ADMIN: %w", number)
	}
	return nil
}
