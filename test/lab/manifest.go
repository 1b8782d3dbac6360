//go:build linux

package lab

import (
	"fmt"
	"slices"
	"strings"
)

// EndpointSlice returns the manifest of an EndpointSlice of a Service in namespace
// default, as another document of a file. The address type is IPv4 or IPv6, the port
// is 8080 and has the name of the service port, and the endpoints are hosts of the lab.
func EndpointSlice(addressType, service, port string, hosts ...string) string {
	family := v4
	if addressType == "IPv6" {
		family = v6
	}
	all := plannedHosts()
	var endpoints []string
	for _, name := range hosts {
		host := all[slices.IndexFunc(all, func(h *Host) bool { return h.Name == name })]
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%q], nodeName: %s}", host.Addrs[family], host.Node))
	}
	return fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{name: %[4]q, port: 8080}]
endpoints: [%[5]s]
`, service, strings.ToLower(addressType), addressType, port, strings.Join(endpoints, ", "))
}
