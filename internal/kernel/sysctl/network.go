package sysctl

import (
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
