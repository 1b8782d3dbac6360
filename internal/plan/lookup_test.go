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
			{chosen, 80, model.TCP}:             own,
			NodePortKey(f, 80, model.TCP):       port,
			NodePortKey(f, 30080, model.TCP):    port,
			{other, 30080, model.UDP}:           own,
			NodePortKey(f, 30053, model.UDP):    nil, // refused, in an index of conntrack's
			{nodeIPOf(f, 4), 30080, model.SCTP}: own,
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
			{"the address itself goes before a node port", Key{chosen, 80, model.TCP}, false, own, true},
			{"a node port", Key{chosen, 30080, model.TCP}, false, port, true},
			{"a node port where those do not answer", Key{other, 30080, model.TCP}, false, nil, false},
			{"an address that is not chosen", Key{routed, 30080, model.TCP}, false, nil, false},
			{"a local address where all answer", Key{routed, 30080, model.TCP}, true, port, true},
			{"another address where all answer", Key{other, 30080, model.TCP}, true, nil, false},
			{"loopback where all answer", Key{loopback, 30080, model.TCP}, true, nil, false},
			{"another protocol", Key{chosen, 30080, model.UDP}, true, nil, false},
			{"one that is known as nothing", Key{chosen, 30053, model.UDP}, false, nil, true},
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
