package sysctl

import (
	"maps"
	"slices"
)

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
