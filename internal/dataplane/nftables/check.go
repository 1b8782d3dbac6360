//go:build linux

package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The oldest kernel with everything that the ruleset uses.
const minMajor, minMinor = 5, 13

// Check returns an error if the kernel or the rights of this process do not suffice for
// nftables. New succeeds nevertheless.
func (d *Dataplane) Check(ctx context.Context) error {
	if !d.anyKernel {
		var name unix.Utsname
		if err := unix.Uname(&name); err != nil {
			return fmt.Errorf("ask the kernel for its version: %w", err)
		}
		if err := checkRelease(unix.ByteSliceToString(name.Release[:])); err != nil {
			return err
		}
	}
	_, err := d.reader.Generation(ctx)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("the proxy may not use nftables: %w (run it as root, or with CAP_NET_ADMIN)", err)
	case err != nil:
		return fmt.Errorf("the kernel does not offer nftables: %w (load the module nf_tables, or use a kernel with CONFIG_NF_TABLES)", err)
	}
	return nil
}

// checkRelease checks a version such as 6.1.0-44-cloud-amd64. It accepts one that it
// cannot parse.
func checkRelease(release string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 {
		return nil
	}
	if major > minMajor || major == minMajor && minor >= minMinor {
		return nil
	}
	return fmt.Errorf("nftables mode needs Linux %d.%d or newer, and this is %s (use a newer kernel on this node, or iptables mode; if its distribution brought nftables up to date, set KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=1)", minMajor, minMinor, release)
}
