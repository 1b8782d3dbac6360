package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const interfacesDir = "proc/sys/net/ipv4/conf"

// RouteLocalnet returns the interfaces that have the setting route_localnet, by
// which neighbours on the network can reach listeners on the machine's
// 127.0.0.1 (CVE-2020-8558). "all" stands for every interface, and "default"
// for future ones. Upstream's iptables mode sets it and leaves it behind; other
// software may need it.
func RouteLocalnet(o Options) ([]string, error) {
	f := files{o.Root, o.Logger}
	entries, err := os.ReadDir(f.path(interfacesDir))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		value, err := f.read(filepath.Join(interfacesDir, e.Name(), "route_localnet"))
		switch {
		case errors.Is(err, fs.ErrNotExist): // the interface was removed meanwhile
		case err != nil:
			return nil, err
		case value != 0 && e.Name() != "lo":
			names = append(names, e.Name())
		}
	}
	if slices.Contains(names, "all") {
		return []string{"all"}, nil
	}
	return names, nil
}
