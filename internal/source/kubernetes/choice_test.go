//lint:file-ignore SA1019 Endpoints is deprecated, and all that some servers have.

package kubernetes

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func someEndpoints(addrs ...string) *v1.Endpoints {
	e := &v1.Endpoints{ObjectMeta: named("web")}
	for _, addr := range addrs {
		e.Subsets = append(e.Subsets, v1.EndpointSubset{
			Addresses: []v1.EndpointAddress{{IP: addr}}, Ports: []v1.EndpointPort{{Port: 8080}},
		})
	}
	return e
}

func TestEndpointsWithoutSlices(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, endpointsPath, nodesPath, cidrsPath)
	server.put(endpointsPath, someEndpoints("10.0.0.1", "10.0.0.2"))
	f := follow(t, server, nil)
	f.inSync()
	want := [][]string{{"slice default/endpoints:web:0:IPv4 of web [10.0.0.1]", "slice default/endpoints:web:1:IPv4 of web [10.0.0.2]"}}
	if diff := cmp.Diff(want, f.since(0)); diff != "" {
		t.Errorf("updates (-want +got)\n%s", diff)
	}
	mark := f.mark()
	server.put(endpointsPath, someEndpoints("10.0.0.3"))
	server.remove(endpointsPath, someEndpoints())
	f.hears("no slice default/endpoints:web:0:IPv4")
	want = [][]string{
		{"no slice default/endpoints:web:1:IPv4", "slice default/endpoints:web:0:IPv4 of web [10.0.0.3]"},
		{"no slice default/endpoints:web:0:IPv4"},
	}
	if diff := cmp.Diff(want, f.since(mark)); diff != "" {
		t.Errorf("updates (-want +got)\n%s", diff)
	}
	if lines := f.logged(`"resource"="endpoints"`); len(lines) != 1 {
		t.Errorf("the choice is logged %d times", len(lines))
	}
}

func TestSlicesBeforeEndpoints(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, slicesPath, endpointsPath, nodesPath, cidrsPath)
	server.put(endpointsPath, someEndpoints("10.0.0.1"))
	f := follow(t, server, nil)
	f.inSync()
	if got := f.since(0); len(got) > 0 || server.query(endpointsPath) != nil {
		t.Errorf("Endpoints were read: %v", got)
	}
}

func TestSlicesAreRetriedUntilAnswered(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, slicesPath, endpointsPath, nodesPath, cidrsPath)
	server.put(slicesPath, aSlice("web-1", "10.0.0.1"))
	server.failAt(slicesPath, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	f := follow(t, server, nil)
	f.eventually("waiting for the slices", func() bool {
		return cmp.Equal(f.source.Status().Waiting, []string{"EndpointSlice"}) && !f.source.Connected()
	})
	server.setFault(nil)
	f.inSync()
	if !f.heard("slice default/web-1 of web [10.0.0.1]") || server.query(endpointsPath) != nil {
		t.Error("the slice is missing, or Endpoints were asked for")
	}
}

// TestSlicesAreRetriedIfEndpointsDenied meets a server that lacks
// slices for a moment only.
func TestSlicesAreRetriedIfEndpointsDenied(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, nodesPath, cidrsPath)
	server.failAt(endpointsPath, http.StatusForbidden, metav1.StatusReasonForbidden)
	f := follow(t, server, nil)
	f.eventually("a failure", func() bool { return f.source.Status().Reason != nil })
	server.serve(slicesPath)
	server.put(slicesPath, aSlice("web-1", "10.0.0.1"))
	f.hears("slice default/web-1 of web [10.0.0.1]")
	f.inSync()
	f.eventually("being connected", f.source.Connected)
}

func TestServiceCIDRsAreOptional(t *testing.T) {
	t.Run("absent, until they come", func(t *testing.T) {
		server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath)
		f := follow(t, server, func(o *Options) { o.ResyncPeriod = 5 * time.Millisecond })
		f.inSync()
		wantAbsence(f, "does not have it")
		server.serve(cidrsPath)
		server.put(cidrsPath, aCIDR("10.96.0.0/16"))
		f.hears("cidr kubernetes [10.96.0.0/16]")
		f.eventually("nothing absent", func() bool { return f.source.Status().Without == nil })
	})
	t.Run("in an old version, then in the new one", func(t *testing.T) {
		server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath, cidrsBetaPath)
		server.put(cidrsBetaPath, &networkingv1beta1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1beta1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
		})
		f := follow(t, server, nil)
		f.inSync()
		if !f.heard("cidr kubernetes [10.96.0.0/16]") {
			t.Error("the ServiceCIDR is missing")
		}
		mark := f.mark()
		server.serve(cidrsPath)
		server.put(cidrsPath, aCIDR("10.96.0.0/16"))
		server.unserve(cidrsBetaPath)
		f.eventually("the new version", func() bool { return server.listed(cidrsPath) > 0 })
		server.put(cidrsPath, aCIDR("10.97.0.0/16"))
		f.hears("cidr kubernetes [10.97.0.0/16]")
		if diff := cmp.Diff([][]string{{"cidr kubernetes [10.97.0.0/16]"}}, f.since(mark)); diff != "" {
			t.Errorf("updates (-want +got)\n%s", diff)
		}
	})
	t.Run("forbidden", func(t *testing.T) {
		server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath, cidrsPath)
		server.put(cidrsPath, aCIDR("10.96.0.0/16"))
		server.failAt(cidrsPath, http.StatusForbidden, metav1.StatusReasonForbidden)
		f := follow(t, server, func(o *Options) { o.ResyncPeriod = 5 * time.Millisecond })
		f.inSync()
		wantAbsence(f, "may not list it")
		server.setFault(nil)
		f.hears("cidr kubernetes [10.96.0.0/16]")
		f.eventually("nothing absent", func() bool { return f.source.Status().Without == nil })
		if lines := f.logged("may not list"); len(lines) != 1 {
			t.Errorf("the refusal is logged %d times", len(lines))
		}
	})
	t.Run("failing", func(t *testing.T) {
		server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath, cidrsPath)
		server.put(cidrsPath, aCIDR("10.96.0.0/16"))
		server.failAt(cidrsPath, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		f := follow(t, server, nil)
		f.inSync()
		if f.source.Connected() {
			t.Error("a failure is no absence")
		}
		server.setFault(nil)
		f.hears("cidr kubernetes [10.96.0.0/16]")
		f.eventually("being connected", f.source.Connected)
	})
}

// wantAbsence wants ServiceCIDRs to be absent, which is no failure, and the log
// to say so once, however often the server is asked for them.
func wantAbsence(f *fixture, reason string) {
	f.Helper()
	status := f.source.Status()
	if !status.Connected || len(status.Without) != 1 || status.Without[0].Kind != "ServiceCIDR" ||
		!strings.Contains(status.Without[0].Reason, reason) || status.Without[0].Remedy == "" {
		f.Errorf("the status is %+v", status)
	}
	asked := f.server.asks(cidrsPath)
	f.eventually("being asked for ServiceCIDRs again", func() bool { return f.server.asks(cidrsPath) > asked+5 })
	if lines := f.logged("Going on without"); len(lines) != 1 || !strings.Contains(lines[0], reason) {
		f.Errorf("the log says %v", lines)
	}
}
