package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The oldest kernel that has all that the ruleset uses.
const minMajor, minMinor = 5, 13

// Check tells whether this kernel and this process can do nftables at all, and
// what is missing if not. New succeeds where Check fails.
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

// checkRelease looks at a version such as 6.1.0-44-cloud-amd64. One that it
// cannot read is given the benefit of the doubt.
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
