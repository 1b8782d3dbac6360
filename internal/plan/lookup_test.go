package plan

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
)

func TestLookup(t *testing.T) {
	eachFamily(t, func(t *testing.T, f model.Family) {
		own, port := &Frontend{Kind: ExternalIP}, &Frontend{Kind: NodePort}
		chosen, other, routed := nodeIPOf(f, 1), nodeIPOf(f, 2), nodeIPOf(f, 3)
		loopback := numbered(f, "127.0.0.%d", "::%x", 1)
		d := &Desired{Frontends: map[Key]*Frontend{
			{Addr: chosen, Port: 80, Protocol: model.TCP}:             own,
			NodePortKey(f, 80, model.TCP):                             port,
			NodePortKey(f, 30080, model.TCP):                          port,
			{Addr: other, Port: 30080, Protocol: model.UDP}:           own,
			NodePortKey(f, 30053, model.UDP):                          nil, // refused, in an index of conntrack's
			{Addr: nodeIPOf(f, 4), Port: 30080, Protocol: model.SCTP}: own,
		}}
		d.Settings.NodePortIPs = []netip.Addr{chosen}
		local := func(ip netip.Addr) bool { return ip == routed || ip == loopback }
		for _, tt := range []struct {
			name  string
			to    Key
			all   bool // node ports answer on every local address
			want  *Frontend
			found bool
		}{
			{"the address itself goes before a node port", Key{Addr: chosen, Port: 80, Protocol: model.TCP}, false, own, true},
			{"a node port", Key{Addr: chosen, Port: 30080, Protocol: model.TCP}, false, port, true},
			{"a node port where those do not answer", Key{Addr: other, Port: 30080, Protocol: model.TCP}, false, nil, false},
			{"an address that is not chosen", Key{Addr: routed, Port: 30080, Protocol: model.TCP}, false, nil, false},
			{"a local address where all answer", Key{Addr: routed, Port: 30080, Protocol: model.TCP}, true, port, true},
			{"another address where all answer", Key{Addr: other, Port: 30080, Protocol: model.TCP}, true, nil, false},
			{"loopback where all answer", Key{Addr: loopback, Port: 30080, Protocol: model.TCP}, true, nil, false},
			{"another protocol", Key{Addr: chosen, Port: 30080, Protocol: model.UDP}, true, nil, false},
			{"one that is known as nothing", Key{Addr: chosen, Port: 30053, Protocol: model.UDP}, false, nil, true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				d.Settings.NodePortAll4, d.Settings.NodePortAll6 = tt.all, tt.all
				if got, found := d.Lookup(tt.to, local); got != tt.want || found != tt.found {
					t.Errorf("%s meets %+v, %v", tt.to, got, found)
				}
			})
		}
	})
}
