package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/inet"
)

// forwarding are the settings that let the kernel forward packets of a family: for all
// interfaces, and for one that packets come in through.
var forwarding = map[inet.Family]struct{ name, file, dir, one string }{
	inet.IPv4: {"net.ipv4.ip_forward", "proc/sys/net/ipv4/ip_forward", interfacesDir, "forwarding"},
	inet.IPv6: {"net.ipv6.conf.all.forwarding", "proc/sys/net/ipv6/conf/all/forwarding", "proc/sys/net/ipv6/conf", "force_forwarding"},
}

// ForwardingName is the name of the setting that lets the kernel forward packets.
func ForwardingName(f inet.Family) string { return forwarding[f].name }

// Forwards reports whether the kernel forwards packets of a family, through any interface.
// What cannot be read is not switched off.
func Forwards(o Options, family inet.Family) bool {
	s := forwarding[family]
	all, err := o.read(s.file)
	interfaces, ierr := o.readAll(s.dir, s.one)
	if err != nil || ierr != nil || all != 0 {
		return true
	}
	for name, one := range interfaces {
		if one != 0 && name != "all" && name != "default" {
			return true
		}
	}
	return false
}

// Connections returns how many connections are tracked in the network namespace, and how many
// can be.
func Connections(o Options) (now, most int, err error) {
	now, err = o.read(filepath.Join(netfilterDir, "nf_conntrack_count"))
	if err != nil {
		return 0, 0, err
	}
	most, err = o.read(filepath.Join(netfilterDir, "nf_conntrack_max"))
	return now, most, err
}

const conntrackStatFile = "proc/thread-self/net/stat/nf_conntrack"

// ConntrackDrops returns how many packets the kernel has dropped in the network namespace because
// their connections could not be tracked.
func ConntrackDrops(o Options) (sum int, err error) {
	text, err := os.ReadFile(o.path(conntrackStatFile))
	if err != nil {
		return 0, err
	}
	names, lines, _ := strings.Cut(string(text), "\n")
	column := slices.Index(strings.Fields(names), "drop")
	for line := range strings.Lines(lines) { // one for each processor
		words := strings.Fields(line)
		if column < 0 || column >= len(words) {
			return 0, fmt.Errorf("%s has no column drop", conntrackStatFile)
		}
		n, err := strconv.ParseUint(words[column], 16, 32)
		if err != nil {
			return 0, err
		}
		sum += int(n)
	}
	return sum, nil
}

// StrictReversePath returns the interfaces on which the kernel drops IPv4 packets whose
// replies would leave through another one: where rp_filter is 1.
func StrictReversePath(o Options) (names []string, err error) {
	values, err := o.readAll(interfacesDir, "rp_filter")
	for name, one := range values {
		if name != "all" && name != "default" && max(values["all"], one) == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

const netstatFile = "proc/thread-self/net/netstat"

// ReversePathDrops returns how many packets rp_filter has dropped in the network namespace.
func ReversePathDrops(o Options) (int, error) {
	text, err := os.ReadFile(o.path(netstatFile))
	if err != nil {
		return 0, err
	}
	var names []string // in the line before the values
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if i := slices.Index(names, "IPReversePathFilter"); i >= 0 && i < len(words) {
			return strconv.Atoi(words[i])
		}
		names = words
	}
	return 0, nil
}

const interfacesDir = "proc/sys/net/ipv4/conf"

// RouteLocalnet returns the interfaces that have the setting route_localnet, by
// which neighbours on the network can reach listeners on the machine's
// 127.0.0.1 (CVE-2020-8558). "all" stands for every interface, and "default"
// for future ones. Upstream's iptables mode sets it and leaves it behind; other
// software may need it.
func RouteLocalnet(o Options) ([]string, error) {
	values, err := o.readAll(interfacesDir, "route_localnet")
	if values["all"] != 0 {
		return []string{"all"}, nil
	}
	maps.DeleteFunc(values, func(_ string, value int) bool { return value == 0 })
	return slices.Sorted(maps.Keys(values)), err
}

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
