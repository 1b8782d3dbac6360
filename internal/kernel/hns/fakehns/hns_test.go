package fakehns

import (
	"fmt"
	"testing"

	"sluice/internal/kernel/hns"
)

// want makes a call and fails the test unless it has the code that is expected.
func (h *HNS) want(t *testing.T, want hns.Code, function string, in hns.Handle, text string) hns.Handle {
	t.Helper()
	code, opened, _ := h.Do(Call{Function: function, Handle: in, Strings: []string{text}})
	if code != want {
		t.Fatalf("%s %s: %#x, want %#x", function, text, uint32(code), uint32(want))
	}
	return opened
}

func endpoint(id, ip string, flags int) string {
	return fmt.Sprintf(`{"ID":%q,"Flags":%d,"IpConfigurations":[{"IpAddress":%q}]}`, id, flags, ip)
}

func balancer(vip string, protocol int, endpoint string) string {
	return fmt.Sprintf(`{"FrontendVIPs":[%q],"HostComputeEndpoints":[%q],"PortMappings":[{"Protocol":%d,"InternalPort":80,"ExternalPort":80}]}`, vip, endpoint, protocol)
}

func TestWhatIsRefused(t *testing.T) {
	h := &HNS{}
	const subnets = `"Ipams":[{"Subnets":[{"IpAddressPrefix":"10.244.1.0/24"}]}]`
	h.want(t, InvalidType, "HcnCreateNetwork", 0, `{"Name":"x","Type":"Bridge"}`)
	bridge := h.want(t, 0, "HcnCreateNetwork", 0, `{"Name":"cbr0","Type":"L2Bridge",`+subnets+`}`)
	h.want(t, NetworkExists, "HcnCreateNetwork", 0, `{"Name":"cbr0","Type":"L2Bridge"}`)
	overlay := h.want(t, 0, "HcnCreateNetwork", 0, `{"Name":"vxlan0","Type":"Overlay",`+subnets+`}`)

	h.want(t, hns.NetworkNotFound, "HcnCreateEndpoint", 999, endpoint("A", "10.244.1.5", 0))
	h.want(t, InvalidIP, "HcnCreateEndpoint", bridge, endpoint("A", "10.244.2.5", 0))
	h.want(t, 0, "HcnCreateEndpoint", bridge, endpoint("A", "10.244.1.5", 0))
	h.want(t, AddressReserved, "HcnCreateEndpoint", bridge, endpoint("B", "10.244.1.5", 0))
	h.want(t, hns.AlreadyExists, "HcnCreateEndpoint", bridge, endpoint("a", "10.244.1.6", 0))
	h.want(t, 0, "HcnCreateEndpoint", bridge, endpoint("B", "10.244.1.5", 1)) // local and remote, as Windows lets happen
	h.want(t, InvalidPolicy, "HcnCreateEndpoint", overlay, endpoint("C", "10.1.1.1", 1))

	h.want(t, hns.EndpointNotFound, "HcnCreateLoadBalancer", 0, balancer("10.96.0.1", 6, "Z"))
	h.want(t, InvalidPolicy, "HcnCreateLoadBalancer", 0, balancer("10.96.0.1", 132, "A"))
	h.want(t, InvalidPolicy, "HcnCreateLoadBalancer", 0, balancer("fd00::1", 6, "A"))
	b := h.want(t, 0, "HcnCreateLoadBalancer", 0, balancer("10.96.0.1", 6, "a"))
	h.want(t, hns.PortAlreadyExists, "HcnCreateLoadBalancer", 0, balancer("10.96.0.1", 6, "B"))
	h.want(t, 0, "HcnCreateLoadBalancer", 0, balancer("10.96.0.1", 17, "B"))
	h.want(t, 0, "HcnModifyLoadBalancer", b, balancer("10.96.0.1", 6, "B"))
	h.want(t, InvalidHandle, "HcnCloseLoadBalancer", bridge, "")
	if got := h.State().Violations; len(got) != 0 {
		t.Errorf("violations %q", got)
	}

	h.Do(Call{Function: "HcnDeleteEndpoint", ID: "b"})
	h.want(t, 0, "HcnModifyLoadBalancer", b, balancer("10.96.0.2", 6, "A"))
	if got := h.State().Violations; len(got) != 3 {
		t.Errorf("violations %q, want one for each load balancer of an endpoint that was deleted, and one for another address", got)
	}
	h.Version.Minor = 4
	h.want(t, hns.NotImplemented, "HcnModifyLoadBalancer", b, balancer("10.96.0.2", 6, "A"))
}
