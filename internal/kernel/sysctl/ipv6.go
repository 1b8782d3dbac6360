package sysctl

import (
	"errors"
	"io/fs"
	"os"
)

const (
	ipv6File    = "proc/net/if_inet6"
	ipv6OffFile = "proc/sys/net/ipv6/conf/all/disable_ipv6"
)

// NoIPv6 returns why this machine does not support IPv6; "" if it does. The
// criteria are upstream's.
func NoIPv6(o Options) string {
	if _, err := os.Stat(o.path(ipv6File)); errors.Is(err, fs.ErrNotExist) {
		return "the kernel has no IPv6 (/" + ipv6File + " does not exist)"
	}
	if value, err := o.read(ipv6OffFile); err == nil && value == 1 {
		return "IPv6 is switched off (/" + ipv6OffFile + " is 1)"
	}
	return ""
}
