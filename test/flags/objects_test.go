//go:build linux

package flags

import "fmt"

// clusterIP is an address that pod1 serves in all runs with traffic.
const clusterIP = "10.96.0.1:80"

const firstObjects = `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {addresses: [{type: InternalIP, address: 192.0.2.10}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  externalIPs: [198.18.0.1]
  ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 30081}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: a, port: 8080}, {name: b, port: 8081}]
endpoints: [{addresses: [10.244.1.1], nodeName: node1}]
---
apiVersion: v1
kind: Service
metadata: {name: local, namespace: default}
spec:
  clusterIP: 10.96.0.2
  internalTrafficPolicy: Local
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: local-1, namespace: default, labels: {kubernetes.io/service-name: local}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.1], nodeName: node1}, {addresses: [10.244.2.1], nodeName: node2}]
---
# Where there is no endpoint on the node, only pods get an answer.
apiVersion: v1
kind: Service
metadata: {name: far, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.4
  externalTrafficPolicy: Local
  allocateLoadBalancerNodePorts: false
  ports: [{port: 80}]
status: {loadBalancer: {ingress: [{ip: 198.18.0.2}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: far-1, namespace: default, labels: {kubernetes.io/service-name: far}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.2], nodeName: node3}]
`

// goneService is a Service whose endpoint changes.
func goneService(endpoint string) string { return service("gone", "10.96.0.3", endpoint) }

// service is a Service with one endpoint.
func service(name, ip, endpoint string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  clusterIP: %[2]s
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [%[3]s]}]
`, name, ip, endpoint)
}

// writeFiles writes the files that the command line refers to.
func (p *proxy) writeFiles() {
	p.Helper()
	p.write("manifests/first.yaml", firstObjects)
	p.write("manifests/gone.yaml", goneService("10.244.1.2"))
	p.write("more-manifests/first.yaml", firstObjects)
	p.write("more-manifests/gone.yaml", goneService("10.244.1.2"))
	p.write("more-manifests/more.yaml", service("more", "10.96.0.9", "10.244.1.2"))
	p.startAPIServer()
}
