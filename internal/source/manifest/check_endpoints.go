//lint:file-ignore SA1019 Endpoints is deprecated, and manifests still hold it.

package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
	"sluice/internal/source"
)

// slice checks an EndpointSlice. It may have any number of endpoints: the
// limit of the API server is there to keep updates small, and a file is read
// as a whole anyway. Addresses that cannot be used are not refused here; they
// are left out.
func (c *checker) slice(slice *discoveryv1.EndpointSlice) bool {
	c.meta(&slice.ObjectMeta, validation.IsDNS1123Subdomain)
	switch slice.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	case "":
		c.add("addressType", "set addressType to IPv4 or IPv6", "the address type is missing")
	default:
		c.add("addressType", "use IPv4, IPv6 or FQDN", "%q is not an address type", slice.AddressType)
	}
	c.slicePorts(slice.Ports)
	for i := range slice.Endpoints {
		c.endpoint(i, &slice.Endpoints[i], slice.AddressType)
	}
	return !c.failed
}

func (c *checker) slicePorts(ports []discoveryv1.EndpointPort) {
	seen := map[string]int{}
	for i, p := range ports {
		field := func(name string) string { return fmt.Sprintf("ports[%d].%s", i, name) }
		var name string
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			c.name(field("name"), name, validation.IsDNS1123Label)
		}
		if first, ok := seen[name]; ok {
			c.add(field("name"), "give every port a name of its own", "ports[%d] has the name %q too", first, name)
		} else {
			seen[name] = i
		}
		if p.Port != nil {
			c.port(field("port"), *p.Port)
		}
		if p.Protocol != nil {
			c.protocol(field("protocol"), *p.Protocol)
		}
	}
}

func (c *checker) endpoint(i int, e *discoveryv1.Endpoint, typ discoveryv1.AddressType) {
	if len(e.Addresses) == 0 {
		c.add(fmt.Sprintf("endpoints[%d].addresses", i), "give every endpoint one address", "the endpoint has no address")
	}
	if e.NodeName != nil {
		if errs := validation.IsDNS1123Subdomain(*e.NodeName); len(errs) > 0 {
			c.name(fmt.Sprintf("endpoints[%d].nodeName", i), *e.NodeName, validation.IsDNS1123Subdomain)
		}
	}
	family := model.IPv4
	switch typ {
	case discoveryv1.AddressTypeIPv4:
	case discoveryv1.AddressTypeIPv6:
		family = model.IPv6
	default:
		return
	}
	for j, s := range e.Addresses {
		addr, err := source.ParseAddr(s)
		if err == nil && source.CheckFamily(addr, family) == nil {
			continue
		}
		field := fmt.Sprintf("endpoints[%d].addresses[%d]", i, j)
		if _, ok := c.addr(field, s); ok {
			c.add(field, "move it to an EndpointSlice of its family", "%s is not an %s address, as addressType says", s, family)
		}
	}
}

// endpoints checks an Endpoints object.
func (c *checker) endpoints(endpoints *v1.Endpoints) bool {
	c.meta(&endpoints.ObjectMeta, validation.IsDNS1123Subdomain)
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		c.subsetPorts(i, subset.Ports)
		c.subsetAddresses(fmt.Sprintf("subsets[%d].addresses", i), subset.Addresses)
		c.subsetAddresses(fmt.Sprintf("subsets[%d].notReadyAddresses", i), subset.NotReadyAddresses)
	}
	return !c.failed
}

func (c *checker) subsetPorts(subset int, ports []v1.EndpointPort) {
	for i, p := range ports {
		field := func(name string) string { return fmt.Sprintf("subsets[%d].ports[%d].%s", subset, i, name) }
		if p.Name != "" {
			c.name(field("name"), p.Name, validation.IsDNS1123Label)
		} else if len(ports) > 1 {
			c.add(field("name"), "set the names of the service's ports", "a port among several has no name")
		}
		c.port(field("port"), p.Port)
		c.protocol(field("protocol"), p.Protocol)
	}
}

func (c *checker) subsetAddresses(field string, addresses []v1.EndpointAddress) {
	for i := range addresses {
		if _, err := source.ParseAddr(addresses[i].IP); err != nil {
			c.addr(fmt.Sprintf("%s[%d].ip", field, i), addresses[i].IP)
		}
	}
}
