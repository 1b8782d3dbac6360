package sysctl

import (
	"slices"
	"testing"

	"sluice/internal/base/inet"
)

func TestForwards(t *testing.T) {
	const v4, v6 = "proc/sys/net/ipv4/ip_forward", "proc/sys/net/ipv6/conf/all/forwarding"
	for _, tt := range []struct {
		name   string
		family inet.Family
		files  map[string]string
		want   bool
	}{
		{"on", inet.IPv4, map[string]string{v4: "1"}, true},
		{"off", inet.IPv4, map[string]string{v4: "0", interfacesDir + "/eth0/forwarding": "0", interfacesDir + "/lo/forwarding": "1"}, false},
		{"on for an interface", inet.IPv4, map[string]string{v4: "0", interfacesDir + "/eth0/forwarding": "1"}, true},
		{"unknown", inet.IPv4, nil, true},
		{"IPv6 on", inet.IPv6, map[string]string{v6: "1"}, true},
		{"IPv6 off, which settings of interfaces do not change", inet.IPv6, map[string]string{v6: "0", "proc/sys/net/ipv6/conf/eth0/forwarding": "1"}, false},
		{"IPv6 forced for an interface", inet.IPv6, map[string]string{v6: "0", "proc/sys/net/ipv6/conf/eth0/force_forwarding": "1"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Forwards(Options{Root: machine(t, tt.files)}, tt.family); got != tt.want {
				t.Errorf("forwards: %v", got)
			}
		})
	}
}

func TestConnections(t *testing.T) {
	now, most, err := Connections(Options{Root: machine(t, map[string]string{netfilterDir + "/nf_conntrack_count": "7"})})
	if now != 7 || most != 65536 || err != nil {
		t.Errorf("%d of %d, %v", now, most, err)
	}
}

func TestReversePath(t *testing.T) {
	o := Options{Root: machine(t, map[string]string{
		interfacesDir + "/all/rp_filter": "0", interfacesDir + "/default/rp_filter": "1", interfacesDir + "/lo/rp_filter": "1",
		interfacesDir + "/eth0/rp_filter": "1", interfacesDir + "/eth1/rp_filter": "2", interfacesDir + "/eth2/rp_filter": "0",
		netstatFile: "TcpExt: SyncookiesSent IPReversePathFilter TCPTimeWaitOverflow\nTcpExt: 1 23 4\nIpExt: InNoRoutes\nIpExt: 5\n",
	})}
	strict, err := StrictReversePath(o)
	if !slices.Equal(strict, []string{"eth0"}) || err != nil {
		t.Errorf("strict on %v, %v", strict, err)
	}
	if dropped, err := ReversePathDrops(o); dropped != 23 || err != nil {
		t.Errorf("dropped %d, %v", dropped, err)
	}
}
