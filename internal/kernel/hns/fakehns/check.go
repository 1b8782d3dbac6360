package fakehns

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/kernel/hns"
)

const (
	protocolTCP = 6
	protocolUDP = 17
)

// check returns why an object cannot be created, and fills in what the service adds to it.
func (h *HNS) check(k hns.Kind, d Document) hns.Code {
	switch k {
	case hns.Networks:
		return h.checkNetwork(d)
	case hns.Endpoints:
		return h.checkEndpoint(d)
	}
	return h.checkBalancer(d)
}

func (h *HNS) checkNetwork(d Document) hns.Code {
	if !slices.Contains([]string{"NAT", "Transparent", "L2Bridge", "L2Tunnel", "ICS", "Private", "Overlay"}, text(d, "Type")) {
		return InvalidType
	}
	for _, other := range h.objects[hns.Networks] {
		if text(other, "Name") == text(d, "Name") {
			return NetworkExists
		}
	}
	return 0
}

func remote(endpoint Document) bool { return number(endpoint, "Flags")&int(hns.RemoteEndpoint) != 0 }

// checkEndpoint: the addresses of local endpoints are in a subnet of the network, no address has two
// local endpoints or two remote ones, and remote ones of an overlay say which node they are on.
func (h *HNS) checkEndpoint(d Document) hns.Code {
	network := h.objects[hns.Networks][text(d, "HostComputeNetwork")]
	configs := documents(d["IpConfigurations"])
	if remote(d) && len(configs) == 0 {
		return InvalidIP
	}
	for _, c := range configs {
		ip, err := netip.ParseAddr(text(c, "IpAddress"))
		if err != nil || !remote(d) && !inSubnet(network, ip) {
			return InvalidIP
		}
		for _, other := range h.objects[hns.Endpoints] {
			if text(other, "HostComputeNetwork") == text(d, "HostComputeNetwork") && remote(other) == remote(d) && slices.Contains(addresses(other), ip.String()) {
				return AddressReserved
			}
		}
	}
	if remote(d) && text(network, "Type") == hns.Overlay && provider(d) == "" {
		return InvalidPolicy
	}
	if text(d, "MacAddress") == "" {
		d["MacAddress"] = fmt.Sprintf("00-15-5D-00-%02X-%02X", len(h.order)>>8&255, len(h.order)&255)
	}
	return 0
}

func inSubnet(network Document, ip netip.Addr) bool {
	for _, ipam := range documents(network["Ipams"]) {
		for _, s := range documents(ipam["Subnets"]) {
			if subnet, err := netip.ParsePrefix(text(s, "IpAddressPrefix")); err == nil && subnet.Contains(ip) && ip != subnet.Masked().Addr() {
				return true
			}
		}
	}
	return false
}

func provider(endpoint Document) string {
	for _, p := range documents(endpoint["Policies"]) {
		if settings, ok := p["Settings"].(Document); ok && text(p, "Type") == "ProviderAddress" {
			return text(settings, "ProviderAddress")
		}
	}
	return ""
}

// checkBalancer: endpoints exist, protocols and ports are possible, addresses are of the family that
// the flags say, and no other balancer has the address, protocol and port.
func (h *HNS) checkBalancer(d Document) hns.Code {
	ids, mappings := texts(d["HostComputeEndpoints"]), documents(d["PortMappings"])
	if len(ids) == 0 || len(mappings) == 0 {
		return InvalidPolicy
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if h.objects[hns.Endpoints][key(id)] == nil {
			return hns.EndpointNotFound
		}
		if seen[key(id)] {
			h.violate("load balancer with endpoint %s twice", id)
		}
		seen[key(id)] = true
	}
	v6 := number(d, "Flags")&int(hns.IPv6) != 0
	vips := texts(d["FrontendVIPs"])
	for _, vip := range vips {
		if ip, err := netip.ParseAddr(vip); err != nil {
			return InvalidIP
		} else if ip.Is6() != v6 {
			return InvalidPolicy
		}
	}
	for _, m := range mappings {
		switch p := number(m, "Protocol"); {
		case p != protocolTCP && p != protocolUDP, number(m, "ExternalPort") == 0:
			return InvalidPolicy
		case number(m, "InternalPort") == 0:
			return InvalidPort
		}
		for id, other := range h.objects[hns.LoadBalancers] {
			if id != key(text(d, "ID")) && number(other, "Flags")&int(hns.IPv6) == number(d, "Flags")&int(hns.IPv6) && sharesFrontend(vips, m, other) {
				return hns.PortAlreadyExists
			}
		}
	}
	return 0
}

func sharesFrontend(vips []string, mapping, other Document) bool {
	theirs := texts(other["FrontendVIPs"])
	if len(vips)+len(theirs) > 0 && !slices.ContainsFunc(vips, func(ip string) bool { return slices.Contains(theirs, ip) }) {
		return false
	}
	return slices.ContainsFunc(documents(other["PortMappings"]), func(m Document) bool {
		return number(m, "Protocol") == number(mapping, "Protocol") && number(m, "ExternalPort") == number(mapping, "ExternalPort")
	})
}

// modify replaces a load balancer. Nothing else is modified by any client that is tested.
func (h *HNS) modify(k hns.Kind, d Document, settings string) hns.Code {
	var with Document
	if json.Unmarshal([]byte(settings), &with) != nil {
		return InvalidJSON
	}
	if k != hns.LoadBalancers || !h.Version.ModifiesLoadBalancers() {
		return hns.NotImplemented
	}
	with["ID"] = d["ID"]
	if code := h.checkBalancer(with); code != 0 {
		return code
	}
	if fmt.Sprint(with["FrontendVIPs"]) != fmt.Sprint(d["FrontendVIPs"]) || len(documents(with["PortMappings"])) != len(documents(d["PortMappings"])) {
		h.violate("load balancer %s modified from %v to %v", text(d, "ID"), d["FrontendVIPs"], with["FrontendVIPs"])
	}
	h.objects[k][key(text(d, "ID"))] = with
	return 0
}

// deleting notes what refers to an object that is deleted. With a network go its endpoints.
func (h *HNS) deleting(k hns.Kind, id string) {
	switch k {
	case hns.Networks:
		for other, e := range h.objects[hns.Endpoints] {
			if text(e, "HostComputeNetwork") == id {
				delete(h.objects[hns.Endpoints], other)
			}
		}
	case hns.Endpoints:
		e := h.objects[hns.Endpoints][id]
		for _, b := range h.objects[hns.LoadBalancers] {
			if slices.ContainsFunc(texts(b["HostComputeEndpoints"]), func(other string) bool { return key(other) == id }) {
				h.violate("endpoint %s deleted, of the load balancer for %v %v", strings.Join(addresses(e), ","), b["FrontendVIPs"], b["PortMappings"])
			}
		}
	}
}
