//go:build linux

package windows

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sluice/internal/kernel/hns"
	"sluice/internal/testkit"
)

func sorted(lines []string) []string { return slices.Sorted(slices.Values(lines)) }

// web returns a Service with these endpoints; those in 10.244.1.0/24 are on the node.
func web(ips ...string) string {
	var endpoints strings.Builder
	for _, ip := range ips {
		node := "node2"
		if strings.HasPrefix(ip, "10.244.1.") {
			node = "node1"
		}
		fmt.Fprintf(&endpoints, "\n- {addresses: [%s], nodeName: %s, conditions: {ready: true}}", ip, node)
	}
	return `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.80
  clusterIPs: [10.96.0.80]
  externalIPs: [198.51.100.7]
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}, {name: odd, protocol: SCTP, port: 99, nodePort: 30099}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: odd, protocol: SCTP, port: 99}]
endpoints:` + endpoints.String() + "\n"
}

// balancers are the lines about the load balancers of web.
func balancers(to string, dsr int, source string) []string {
	line := func(vip string, port, flags, mapping int) string {
		return fmt.Sprintf("balancer %s protocol 6 port %d to %s port 8080 flags %d mapping %d distribution 2 source %s", vip, port, to, flags, mapping, source)
	}
	return []string{line("10.96.0.80", 80, dsr, 0), line("198.51.100.7", 80, 0, 16), line("*", 30080, 0, 18)}
}

func TestWindows(t *testing.T) {
	l := newLab(t)
	for _, networkType := range []string{hns.L2Bridge, hns.L2Tunnel, hns.Overlay} {
		for _, release := range []string{"14.0", "15.5"} {
			t.Run(networkType+" "+release, func(t *testing.T) { l.with(t).serves(networkType, release) })
		}
	}
	t.Run("load balancer", func(t *testing.T) { l.with(t).servesLoadBalancer() })
	t.Run("HNS away", func(t *testing.T) { l.with(t).waitsForHNS() })
	t.Run("service", func(t *testing.T) { l.with(t).runsAsService() })
	t.Run("packages", func(t *testing.T) { l.with(t).testsPackages() })
}

// with returns the lab for a part of the test.
func (l *lab) with(t *testing.T) *lab {
	part := *l
	part.T = t
	return &part
}

// serves: what manifests ask for is in HNS at the start, after changes, and after a process was killed,
// and is removed by --cleanup. What another program made stays.
func (l *lab) serves(networkType, release string) {
	n := newNode(l, networkType, release)
	n.flags = append(n.flags, "--enable-dsr")
	n.write("web.yaml", web("10.244.1.5", "10.244.2.6"))
	// On an overlay endpoints are on nodes, and ClusterIPs and the source address have endpoints, too.
	source := "-"
	endpoints := func(ips ...string) (lines []string) {
		overlay := networkType == hns.Overlay
		for _, ip := range ips {
			line := "endpoint remote " + ip
			if overlay {
				line += " at 192.0.2.20"
			}
			lines = append(lines, line)
		}
		if overlay {
			source = "10.244.1.250"
			lines = append(lines, "endpoint local 10.244.1.250", "endpoint remote 10.96.0.80 at 192.0.2.10")
		}
		return lines
	}
	first := endpoints("10.244.2.6")
	p := n.proxy()
	n.holds(append(first, balancers("10.244.1.5 10.244.2.6", 1, source)...)...)

	before := n.hns.State()
	n.write("web.yaml", web("10.244.1.5", "10.244.2.8"))
	n.holds(append(endpoints("10.244.2.8"), balancers("10.244.1.5 10.244.2.8", 1, source)...)...)
	testkit.Until(l, func() bool { return n.hns.State().OpenHandles == 0 })
	after := n.hns.State()
	modified, created := after.Calls["HcnModifyLoadBalancer"], after.Calls["HcnCreateLoadBalancer"]-before.Calls["HcnCreateLoadBalancer"]
	if release == "15.5" && (modified != 3 || created != 0) || release == "14.0" && (modified != 0 || created != 3) {
		l.Errorf("%d load balancers were modified and %d created", modified, created)
	}

	p.kill()
	n.write("web.yaml", web("10.244.2.8"))
	p = n.proxy()
	n.holds(append(endpoints("10.244.2.8"), balancers("10.244.2.8", 1, source)...)...)
	p.kill()
	n.runWith(n.env, "wine", l.exe, "--cleanup")
	n.holds()
}

// lb is a Service with a load balancer that keeps the destination of packets, and asks for the health of
// nodes.
const lb = `apiVersion: v1
kind: Service
metadata: {name: lb, namespace: default, annotations: {preserve-destination: "true"}}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.90
  clusterIPs: [10.96.0.90]
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  loadBalancerSourceRanges: [192.0.2.0/24]
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30090}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9, ipMode: VIP}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lb-1, namespace: default, labels: {kubernetes.io/service-name: lb}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.1.5], nodeName: node1, conditions: {ready: true}}
- {addresses: [10.244.2.6], nodeName: node2, conditions: {ready: true}}
`

// servesLoadBalancer: health checks go to the node's own endpoint, and packets keep their destination. The
// network is named by the environment, and what HNS cannot do is said.
func (l *lab) servesLoadBalancer() {
	n := newNode(l, hns.L2Bridge, "15.5")
	n.flags = slices.DeleteFunc(n.flags, func(f string) bool { return strings.HasPrefix(f, "--network-name=") })
	n.flags, n.env = append(n.flags, "--forward-healthcheck-vip", "--root-hnsendpoint-name=pod"), append(n.env, "KUBE_NETWORK=cbr0")
	n.write("lb.yaml", lb)
	p := n.proxy()
	n.holds("endpoint remote 10.244.2.6",
		"balancer 10.96.0.90 protocol 6 port 80 to 10.244.1.5 10.244.2.6 port 8080 flags 0 mapping 0 distribution 0 source -",
		"balancer 203.0.113.9 protocol 6 port 80 to 10.244.1.5 port 8080 flags 1 mapping 28 distribution 0 source -",
		"balancer 203.0.113.9 protocol 6 port 32000 to 10.244.1.5 port 32000 flags 0 mapping 12 distribution 0 source -",
		"balancer * protocol 6 port 30090 to 10.244.1.5 port 8080 flags 1 mapping 18 distribution 0 source -",
	)
	testkit.Until(l, func() bool { return strings.Contains(l.read(p.log), "does not look at the source of connections") })
}

// waitsForHNS: without HNS the proxy says so and waits, and serves when it is there.
func (l *lab) waitsForHNS() {
	n := newNode(l, hns.L2Bridge, "15.5")
	n.write("web.yaml", web("10.244.2.6"))
	address := n.service.Addr().String()
	n.service.Close()
	p := n.proxy()
	testkit.Until(l, func() bool { return strings.Contains(l.read(p.log), "HNS is not running") })
	err := l.ns.Do(func() (err error) {
		n.service, err = listenAt(address)
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { n.service.Close() })
	go func() { _ = serve(n.service, n.hns) }()
	n.holds(append(balancers("10.244.2.6", 0, "-"), "endpoint remote 10.244.2.6")...)
}

// runsAsService: the service control manager starts the proxy, and ends it; load balancers stay.
func (l *lab) runsAsService() {
	n := newNode(l, hns.L2Bridge, "15.5")
	n.write("web.yaml", web("10.244.2.6"))
	config := l.path("config.yaml")
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
hostnameOverride: node1
windowsRunAsService: true
healthzBindAddress: %s
metricsBindAddress: %s
winkernel: {networkName: cbr0}
`, n.freePort(), n.freePort())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		l.Fatal(err)
	}
	bin := strings.Join([]string{native(l.exe), "--config=" + native(config), "--manifests=" + native(n.manifests), "--page=false", "--control-socket="}, " ")
	l.runWith(n.env, "wine", "reg", "add", `HKLM\System\CurrentControlSet\Control\Session Manager\Environment`, "/v", "FAKE_HNS", "/d", strings.TrimPrefix(n.env[0], "FAKE_HNS="), "/f")
	l.run("wineserver", "-k")
	_ = l.command("wineserver", "-w").Run()
	// Services end with the last program that is none.
	hold := l.start("hold.log", n.env, "wine", l.exe, "--sandbox", "--manifests="+native(n.manifests), "--page=false", "--control-socket=",
		"--healthz-bind-address="+n.freePort(), "--metrics-bind-address="+n.freePort())
	l.Cleanup(func() { _ = hold.Process.Kill(); _ = hold.Wait() })
	testkit.Until(l, func() bool { return strings.Contains(l.read("hold.log"), "Starting") })
	l.runWith(n.env, "wine", "sc", "create", "kube-proxy", "binPath=", bin)
	l.runWith(n.env, "wine", "sc", "start", "kube-proxy")
	want := append(balancers("10.244.2.6", 0, "-"), "endpoint remote 10.244.2.6")
	n.holds(want...)
	if out := l.runWith(n.env, "wine", "sc", "query", "kube-proxy"); !strings.Contains(out, "RUNNING") {
		l.Errorf("sc query says\n%s", out)
	}
	l.runWith(n.env, "wine", "sc", "stop", "kube-proxy")
	testkit.Until(l, func() bool { return strings.Contains(l.runWith(n.env, "wine", "sc", "query", "kube-proxy"), "STOPPED") })
	n.holds(want...)
	l.runWith(n.env, "wine", "sc", "delete", "kube-proxy")
}

// testsPackages runs the tests of packages that know no system.
func (l *lab) testsPackages() {
	for _, pkg := range []string{"base/backoff", "base/filewatch", "model", "dataplane/kernelspace"} {
		out := l.path("test.exe")
		build := exec.Command("go", "test", "-c", "-o", out, "sluice/internal/"+pkg)
		build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			l.Errorf("%s: %v\n%s", pkg, err, text)
			continue
		}
		if text := l.run("wine", out, "-test.short"); !strings.Contains(text, "PASS") {
			l.Errorf("%s:\n%s", pkg, text)
		}
	}
}
