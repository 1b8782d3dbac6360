//go:build linux

package userspace

import (
	"net/netip"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

func frontendAt(at string, service string, endpoints ...string) *plan.Frontend {
	return &plan.Frontend{
		Key: dataplanetest.Key(at, model.TCP), Service: model.Name{Namespace: "test", Name: service}, Port: "http",
		ProxyConnects: true, Route: plan.Route{Endpoints: dataplanetest.Endpoints(endpoints...)},
	}
}

func newTestDirectory() *directory { return newDirectory(clocktesting.NewFakeClock(time.Now())) }

func TestPoolsAreFound(t *testing.T) {
	d := newTestDirectory()
	d.configure(&plan.Settings{NodePortIPs: testkit.Addrs("192.0.2.10")})
	web := frontendAt("10.96.0.1:80", "web", "10.244.0.1:8080")
	local := frontendAt("0.0.0.0:30080", "web", "10.244.0.1:8080", "10.244.1.1:8080")
	local.Outside = &plan.Route{Endpoints: dataplanetest.Endpoints("10.244.0.1:8080")}
	d.set(web)
	d.set(local)
	find := func(to string, outside bool) any {
		p := d.find(netip.MustParseAddrPort(to), model.TCP, outside)
		switch {
		case p == nil:
			return nil
		case p == d.frontends[web.Key].route:
			return "web"
		case p == d.frontends[local.Key].route:
			return "inside"
		case p == d.frontends[local.Key].outside:
			return "outside"
		}
		return "unknown"
	}
	for _, tt := range []struct {
		to      string
		outside bool
		want    any
	}{
		{"10.96.0.1:80", false, "web"},
		{"10.96.0.1:80", true, "web"},
		{"192.0.2.10:30080", false, "inside"},
		{"192.0.2.10:30080", true, "outside"},
		{"10.96.0.1:81", false, nil},
		{"[2001:db8::10]:30080", false, nil},
	} {
		if got := find(tt.to, tt.outside); got != tt.want {
			t.Errorf("%s, outside %v: %v, want %v", tt.to, tt.outside, got, tt.want)
		}
	}
	if d.find(netip.MustParseAddrPort("10.96.0.1:80"), model.UDP, false) != nil {
		t.Error("another protocol has a pool")
	}
	if len(d.balancers) != 1 {
		t.Errorf("the frontends of a service port have %d balancers", len(d.balancers))
	}

	// The policy goes, the frontend changes hands, and all goes in the end.
	local = frontendAt("0.0.0.0:30080", "web", "10.244.0.1:8080")
	d.set(local)
	if got := find("192.0.2.10:30080", true); got != "inside" {
		t.Errorf("without the policy: %v", got)
	}
	d.set(frontendAt("0.0.0.0:30080", "other", "10.244.0.9:8080"))
	if len(d.balancers) != 2 {
		t.Errorf("two Services have %d balancers", len(d.balancers))
	}
	d.keep(map[plan.Key]*plan.Frontend{web.Key: web})
	if find("192.0.2.10:30080", false) != nil || len(d.balancers) != 1 {
		t.Errorf("a frontend that is gone is found, or one of %d balancers is left", len(d.balancers))
	}
	d.remove(web.Key)
	if len(d.frontends) != 0 || len(d.balancers) != 0 {
		t.Errorf("%d frontends and %d balancers are left", len(d.frontends), len(d.balancers))
	}
}

func TestSourceOfConnections(t *testing.T) {
	const node, pod, remote, elsewhere = "192.0.2.10", "10.244.0.1", "10.244.1.1", "192.0.2.20"
	own := netip.MustParseAddr(node)
	d := newTestDirectory()
	d.configure(&plan.Settings{NodePortAll4: true, PodCIDRs: testkit.Prefixes("10.244.0.0/16"), HostIPs: []netip.Addr{own}})
	d.set(frontendAt("0.0.0.0:30080", "web", "10.244.0.1:8080"))
	for _, tt := range []struct {
		name, client, endpoint string
		local, masquerade      bool
		want                   string // empty if the kernel chooses
	}{
		{"pod on this node", "10.244.0.5", pod + ":8080", true, false, "10.244.0.5"},
		{"pod on another node", "10.244.0.5", remote + ":8080", false, false, "10.244.0.5"},
		{"another node", "10.244.0.5", elsewhere + ":8080", false, false, ""},
		{"client on the node", node, elsewhere + ":8080", false, false, node},
		{"masqueraded", "198.51.100.1", pod + ":8080", true, true, ""},
		{"this node itself", "198.51.100.1", node + ":8080", true, true, "198.51.100.1"},
		{"the client itself", pod, pod + ":8080", true, false, ""},
		{"a frontend", "10.244.0.5", elsewhere + ":30080", false, false, node},
	} {
		to := plan.Endpoint{AddrPort: netip.MustParseAddrPort(tt.endpoint), Local: tt.local}
		c := connection{netip.MustParseAddr(tt.client), to, model.TCP, tt.masquerade}
		var want netip.Addr
		if tt.want != "" {
			want = netip.MustParseAddr(tt.want)
		}
		if got := d.source(c, own); got != want {
			t.Errorf("%s: %v, want %v", tt.name, got, want)
		}
	}
}
