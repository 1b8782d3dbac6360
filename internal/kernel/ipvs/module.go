package ipvs

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Module is the kernel module of IPVS, and SchedulerModule that of a scheduler.
const Module = "ip_vs"

// SchedulerModule returns the kernel module of a scheduler.
func SchedulerModule(scheduler string) string { return Module + "_" + scheduler }

// LoadModule has the kernel load a module of IPVS, if it can be loaded and is not yet.
// It asks by the name of a network interface, for which the kernel runs modprobe, in the
// machine's own file system: a process with the capability SYS_MODULE needs neither
// commands nor modules in its container. Whether that worked shows when the module is
// used.
//
// The kernel would load a scheduler by itself for the first virtual service that uses
// it, but some kernels then wait forever if a network namespace is being removed.
func LoadModule(name string) error {
	if _, err := os.Stat(filepath.Join("/sys/module", name)); err == nil {
		return nil
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}
