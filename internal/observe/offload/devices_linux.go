package offload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// subscribeAgain is the pause after notifications have ended.
const subscribeAgain = time.Second

// watchDevices calls changed when devices, addresses or routes may have changed, until ctx ends.
func watchDevices(ctx context.Context, clock clock.Clock, changed func()) {
	for ctx.Err() == nil {
		socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
		if err == nil {
			stop := context.AfterFunc(ctx, socket.Close)
			for err == nil { // what came before the subscription counts, too
				changed()
				_, _, err = socket.Receive()
			}
			if stop() {
				socket.Close()
			}
		}
		select { // too many came at once; where there are none, all is looked at now and then
		case <-ctx.Done():
		case <-clock.After(subscribeAgain):
		}
	}
}

// errNoDevice is why the outside has no device.
var errNoDevice = errors.New("no device")

// devicesOf returns the devices with these addresses.
func devicesOf(ips []netip.Addr) (names []string, err error) {
	if len(ips) == 0 {
		return nil, fmt.Errorf("%w: the node's addresses are not known", errNoDevice)
	}
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, ip := range ips {
		at := slices.IndexFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(net.IP(ip.AsSlice())) })
		if at < 0 {
			return nil, fmt.Errorf("%w of this machine has the node's address %s", errNoDevice, ip)
		}
		link, err := netlink.LinkByIndex(list[at].LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("find the device of %s: %w", ip, err)
		}
		if link.Attrs().Flags&net.FlagLoopback != 0 || link.Type() == "dummy" {
			return nil, fmt.Errorf("%w: the node's address %s is on %s, where no packets come in", errNoDevice, ip, link.Attrs().Name)
		}
		names = append(names, link.Attrs().Name)
	}
	return names, nil
}

// named returns a device of that name.
func named(device string) ([]string, error) {
	if _, err := netlink.LinkByName(device); err != nil {
		return nil, fmt.Errorf("%w of this machine is called %s", errNoDevice, device)
	}
	return []string{device}, nil
}

// routes are the devices, by number, through which packets to addresses leave; 0 for none.
type routes map[netip.Addr]int

// ask asks the kernel about those addresses that are not known. Node-local ones have no device.
func (r routes) ask(addrs map[netip.Addr]struct{}) {
	for addr := range addrs {
		if _, known := r[addr]; known {
			continue
		}
		r[addr] = 0
		found, err := netlink.RouteGet(addr.AsSlice())
		if err == nil && len(found) > 0 && found[0].Type != unix.RTN_LOCAL {
			r[addr] = found[0].LinkIndex
		}
	}
}

// devices returns their names.
func (r routes) devices() (names []string, err error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the machine's devices: %w", err)
	}
	used := map[int]bool{}
	for _, index := range r {
		used[index] = true
	}
	for _, link := range links {
		if a := link.Attrs(); used[a.Index] && a.Flags&net.FlagLoopback == 0 {
			names = append(names, a.Name)
		}
	}
	return names, nil
}
