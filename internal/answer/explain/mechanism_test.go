package explain

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/kernelspace"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// On a node with Windows only that is said which HNS is asked for: it has no masquerading to configure, no
// rejecting, no source ranges, no timeout of affinity, and nothing depends on how pods are recognised.
func TestWhatHNSIsAskedFor(t *testing.T) {
	asks := func(s *model.Service) {
		external(s)
		s.Affinity, s.Filtered, s.SourceRanges = 600, true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}
	local := func(s *model.Service) { s.ExternalPolicy = model.PolicyLocal }
	holds := behaviour{Describe: func(dataplane.Destination, netip.Addr) (dataplane.Description, error) {
		return dataplane.Description{Present: true, RouteSize: 2, Objects: []dataplane.Object{{Where: "load balancer 736C7569", What: "leads to 2 endpoints"}},
			Route: []netip.AddrPort{netip.MustParseAddrPort("10.1.0.1:8080"), netip.MustParseAddrPort("10.1.0.2:8080")}}, nil
	}}
	for _, test := range []struct {
		name     string
		in       behaviour
		events   []model.Event
		to, from string
		want     []string
	}{
		{"a pod", holds, []model.Event{service(asks), endpoints("here", "there")}, "10.96.0.1:80", "pod",
			[]string{"a pod; HNS does the same for all clients", "for as long as HNS decides", "which address the endpoint sees is up to HNS",
				"HNS            holds a load balancer for it, and 2 endpoints", "in HNS         load balancer 736C7569"}},
		{"a client by its address", holds, []model.Event{service(asks), endpoints("here", "there")}, "198.51.100.1:80", "203.0.113.5",
			[]string{"203.0.113.5; HNS does", "everybody may connect: HNS has none", "which address the endpoint sees is up to HNS"}},
		{"policy Local", holds, []model.Event{service(asks, local), endpoints("here", "there")}, "198.51.100.1:80", "node",
			[]string{"endpoints on this node, since externalTrafficPolicy is Local: 1 of 2", "HNS is asked to let the endpoint see the client's address: externalTrafficPolicy is Local"}},
		{"no endpoint", behaviour{}, []model.Event{service(asks)}, "10.96.0.1:80", "pod",
			[]string{"HNS is asked for nothing: the packet is neither forwarded nor refused"}},
		{"refused", behaviour{Refuse: map[netip.Addr]error{webIP: errors.New("0x803b0013")}}, []model.Event{service(), endpoints("here")}, "10.96.0.1:80", "pod",
			[]string{"HNS refused this frontend: 0x803b0013", "would reach an endpoint, but HNS is not programmed so"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := plan.Config{NodeName: "here", DetectLocal: plan.DetectClusterCIDR, MasqueradeAll: true}
			kernelspace.Mode.Adjust(&c)
			p := startOn(t, enginetest.New(t, c), test.in)
			p.engine.Attempt(test.events...)
			_, text := p.ask(t, test.to, test.from)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			for _, alien := range []string{"masquerade", "detectLocal", "kernel", "verdict", "reject", "conntrack", "connection tracking", "nft", "sysctl", "only these may connect", "10 min", "counts as"} {
				if strings.Contains(text, alien) {
					t.Errorf("there is no %q on Windows:\n%s", alien, text)
				}
			}
		})
	}
}
