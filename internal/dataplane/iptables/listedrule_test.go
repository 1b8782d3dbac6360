//go:build linux

package iptables

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func TestParseRule(t *testing.T) {
	tests := []struct {
		name, in string
		want     listedRule
	}{
		{"to a chain", "-A KUBE-SERVICES -d 10.96.0.0/18 -j KUBE-IP-10-96-0-0-18",
			listedRule{destination: netip.MustParsePrefix("10.96.0.0/18"), last: 65535, target: "KUBE-IP-10-96-0-0-18"}},
		{"not back", "-A KUBE-IP-X -p tcp -m tcp --dport 80:95 -g KUBE-IP-Y",
			listedRule{protocol: "tcp", port: 80, last: 95, target: "KUBE-IP-Y", leaves: true}},
		{"to an endpoint", `-A KUBE-SERVICES -d fd00::1/128 -p udp -m comment --comment "-j of default/web" -m udp --dport 53 -j DNAT --to-destination [fd00::2]:53`,
			listedRule{destination: netip.MustParsePrefix("fd00::1/128"), protocol: "udp", port: 53, last: 53, target: "DNAT", to: netip.MustParseAddrPort("[fd00::2]:53")}},
		{"of certain senders", "-A KUBE-ROUTE-X -p tcp -m addrtype --src-type LOCAL -j KUBE-POOL-X",
			listedRule{protocol: "tcp", last: 65535, conditional: true, target: "KUBE-POOL-X"}},
		{"of all others", "-A KUBE-ROUTE-X ! -s 10.244.0.0/16 -p tcp -j KUBE-MARK-MASQ",
			listedRule{protocol: "tcp", last: 65535, target: "KUBE-MARK-MASQ"}},
		{"of clients that are remembered", "-A KUBE-POOL-X -p tcp -m recent --update --seconds 60 --reap --name KUBE-SEP-X --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:80",
			listedRule{protocol: "tcp", last: 65535, recalls: true, target: "DNAT", to: netip.MustParseAddrPort("10.0.0.1:80")}},
		{"of clients that come to be remembered", "-A KUBE-POOL-X -p tcp -m recent --set --name KUBE-SEP-X -j DNAT --to-destination 10.0.0.1:80",
			listedRule{protocol: "tcp", last: 65535, target: "DNAT", to: netip.MustParseAddrPort("10.0.0.1:80")}},
		{"nothing", "", listedRule{last: 65535}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseRule(tt.in); got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// Any rule that others write into our chains is parsed.
func FuzzParseRule(f *testing.F) {
	f.Add("-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:80")
	f.Add(`! -d "" --dport :-1 -m recent -j`)
	f.Fuzz(func(t *testing.T, line string) {
		r := parseRule(line)
		if at := placeAt("10.96.0.1:80", model.TCP, ""); r.matches(at) && r.destination.IsValid() && !r.destination.Contains(at.IP) {
			t.Errorf("a rule for %s takes a packet to %s", r.destination, at.Addr)
		}
	})
}
