package source

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
)

// sayer keeps what a sink is told, in words.
type sayer struct{ said []string }

func (s *sayer) Synced() { s.said = append(s.said, "synced") }

func (s *sayer) Update(events ...model.Event) {
	for _, e := range events {
		switch e := e.(type) {
		case model.SetService:
			word := "set "
			if e.Released && e.HealthCheckNodePort == 0 {
				word = "release "
			}
			s.said = append(s.said, word+e.Name.Name)
		case model.DeleteService:
			s.said = append(s.said, "delete "+e.Name.Name)
		default:
			s.said = append(s.said, fmt.Sprintf("%T", e))
		}
	}
}

// A Service that another proxy serves now stays for a while, without its health check node port, unless it is
// deleted, or comes back.
func TestHandover(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	next := &sayer{}
	sink := Handover(next, clock, time.Second)
	name := func(s string) model.Name { return model.Name{Name: s} }
	set := func(s string) model.Event {
		return model.SetService{Service: &model.Service{Name: name(s), HealthCheckNodePort: 30000}}
	}
	sink.Update(set("a"), set("b"), set("c"), model.ReleaseService{Name: name("foreign")}, model.SetNode{})
	sink.Synced()
	sink.Update(model.ReleaseService{Name: name("a")}, model.ReleaseService{Name: name("b")}, model.ReleaseService{Name: name("c")})
	sink.Update(set("b"))
	sink.Update(model.DeleteService{Name: name("c")}, model.DeleteService{Name: name("foreign")})
	clock.Step(900 * time.Millisecond)
	sink.Update(model.ReleaseService{Name: name("b")})
	next.said = append(next.said, "after 0.9s")
	clock.Step(900 * time.Millisecond)
	next.said = append(next.said, "after 1.8s")
	clock.Step(time.Second)
	want := []string{"set a", "set b", "set c", "model.SetNode", "synced", "release a", "release b", "release c", "set b", "delete c",
		"release b", "after 0.9s", "delete a", "after 1.8s", "delete b"}
	if diff := cmp.Diff(want, next.said); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The label decides whose a Service is.
func TestWhoseServices(t *testing.T) {
	const set, release, nothing = "set", "release", ""
	for _, tt := range []struct {
		proxy                  Proxy
		plain, trial, other    string
		rangesOfServices, says bool
	}{
		{proxy: Proxy{}, plain: set, rangesOfServices: true},
		{proxy: Proxy{ServiceProxyName: "trial"}, plain: release, trial: set, other: release, says: true},
		{proxy: Proxy{ServiceProxyName: "trial", AllServices: true}, plain: set, trial: set, other: release, rangesOfServices: true, says: true},
	} {
		for label, want := range map[string]string{"": tt.plain, "trial": tt.trial, "other": tt.other} {
			events := tt.proxy.Events(service(func(s *v1.Service) {
				if label != "" {
					s.Labels = map[string]string{LabelServiceProxyName: label}
				}
			}))
			got := nothing
			if len(events) > 0 {
				got = release
				if _, ok := events[0].(model.SetService); ok {
					got = set
				}
			}
			if got != want {
				t.Errorf("%+v: a Service labelled %q: %q, want %q", tt.proxy, label, got, want)
			}
		}
		headless := service(func(s *v1.Service) { s.Spec.ClusterIP = v1.ClusterIPNone })
		if events := tt.proxy.Events(headless); len(events) > 0 {
			t.Errorf("%+v: a headless Service: %v", tt.proxy, events)
		}
		cidr := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}}
		if got := len(tt.proxy.Events(cidr)) > 0; got != tt.rangesOfServices {
			t.Errorf("%+v: a ServiceCIDR matters: %t", tt.proxy, got)
		}
		if got := tt.proxy.Served() != ""; got != tt.says {
			t.Errorf("%+v: it serves %q", tt.proxy, tt.proxy.Served())
		}
	}
}
