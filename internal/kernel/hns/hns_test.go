package hns_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"testing"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
)

func TestGUID(t *testing.T) {
	const text = "73C75696-3651-8ABC-9DEF-0123456789AB"
	for _, in := range []string{text, "{73c75696-3651-8abc-9def-0123456789ab}"} {
		if g, err := hns.ParseGUID(in); err != nil || g.String() != text {
			t.Errorf("%s is %v, %v", in, g, err)
		}
	}
	for _, in := range []string{"", "73C75696", text + "00", "73C75696-3651-8ABC-9DEF-0123456789AX"} {
		if g, err := hns.ParseGUID(in); err == nil {
			t.Errorf("%q is %v", in, g)
		}
	}
	var e hns.Endpoint
	if err := json.Unmarshal([]byte(`{"ID":"`+text+`","HostComputeNetwork":"","IpConfigurations":[{"IpAddress":""}]}`), &e); err != nil || e.ID.String() != text {
		t.Errorf("%v, %v", e.ID, err)
	}
}

func TestWhatVersionsCan(t *testing.T) {
	for _, test := range []struct {
		v                               hns.Version
		modifies, dsr, affinity, family bool
	}{
		{hns.Version{Major: 9, Minor: 2}, false, false, false, false},
		{hns.Version{Major: 9, Minor: 3}, false, true, false, false},
		{hns.Version{Major: 10, Minor: 1}, false, false, false, false},
		{hns.Version{Major: 11, Minor: 10}, false, true, false, true},
		{hns.Version{Major: 14, Minor: 9}, false, true, true, true},
		{hns.Version{Major: 15, Minor: 5}, true, true, true, true},
		{hns.Version{Major: 16}, true, true, true, true},
	} {
		if v := test.v; v.ModifiesLoadBalancers() != test.modifies || v.DSR() != test.dsr || v.Affinity() != test.affinity || v.DualStack() != test.family {
			t.Errorf("%v: modifies %t, DSR %t, affinity %t, dual stack %t", v, v.ModifiesLoadBalancers(), v.DSR(), v.Affinity(), v.DualStack())
		}
	}
}

// A client leaves no handle open, whichever call fails.
func TestHandlesAreClosed(t *testing.T) {
	var id hns.GUID
	id[0] = 1
	for failing := 0; ; failing++ {
		h := &fakehns.HNS{}
		c := hns.NewClient(h.ABI())
		h.Do(fakehns.Call{Function: "HcnCreateNetwork", Strings: []string{`{"Name":"n","Type":"L2Bridge"}`}})
		h.DropHandles()
		calls := 0
		h.Fault = func(call fakehns.Call) hns.Code {
			calls++
			if calls == failing && call.Function[:8] != "HcnClose" {
				return hns.InvalidParameter
			}
			return 0
		}
		network, err := c.NetworkNamed("n")
		if err == nil {
			e := &hns.Endpoint{ID: id, Flags: hns.RemoteEndpoint, IPConfigurations: []hns.IPConfig{{IPAddress: netip.MustParseAddr("10.0.0.1")}}}
			err = c.CreateEndpoint(network.ID, e)
		}
		b := &hns.LoadBalancer{ID: id, HostComputeEndpoints: []hns.GUID{id}, PortMappings: []hns.PortMapping{{Protocol: 6, InternalPort: 80, ExternalPort: 80}}}
		for _, step := range []func() error{
			func() error { return c.CreateLoadBalancer(b) },
			func() error { return c.ModifyLoadBalancer(b) },
			func() error { return c.Delete(hns.LoadBalancers, id) },
			func() error { return c.Delete(hns.LoadBalancers, id) }, // it is gone
			func() error { return c.Delete(hns.Endpoints, id) },
		} {
			if err == nil {
				err = step()
			}
		}
		if open := h.State().OpenHandles; open != 0 {
			t.Errorf("call %d fails: %d handles are open", failing, open)
		}
		if failing > 0 && failing <= calls && err == nil && calls < 8 {
			t.Errorf("call %d fails, and nothing is wrong", failing)
		}
		if failing > calls {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
}

func TestNoSuchNetwork(t *testing.T) {
	h := &fakehns.HNS{}
	if n, err := hns.NewClient(h.ABI()).NetworkNamed("n"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", n, err)
	}
}
