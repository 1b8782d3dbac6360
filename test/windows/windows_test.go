//go:build linux

package windows

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/testkit"
	"sluice/test/windows/wine"
)

func TestWindows(t *testing.T) {
	l := newLab(t)
	parts := map[string]func(*testing.T){
		"load balancer": l.servesLoadBalancer, "HNS away": l.waitsForHNS, "killed": l.isKilledAtAnyCall, "commands": l.answers,
		"chart": l.runsAsChart, "service": l.runsAsService, "packages": l.testsPackages,
	}
	for _, networkType := range []string{hns.L2Bridge, hns.L2Tunnel, hns.Overlay} {
		for _, release := range []string{"14.0", "15.5"} {
			parts[networkType+" "+release] = func(t *testing.T) { l.serves(t, networkType, release) }
		}
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t)
		})
	}
}

// serves: what manifests ask for is in HNS at the start, after changes, and after a process was killed,
// and is removed by --cleanup. What another program made stays. Of the last two an ordinary run tries one with each
// release: each is a start of wine.
func (l *lab) serves(t *testing.T, networkType, release string) {
	n := l.newNode(t, networkType, release)
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

	before := n.HNS.State()
	n.write("web.yaml", web("10.244.1.5", "10.244.2.8"))
	n.holds(append(endpoints("10.244.2.8"), balancers("10.244.1.5 10.244.2.8", 1, source)...)...)
	n.settled()
	after := n.HNS.State()
	modified, created := after.Calls["HcnModifyLoadBalancer"], after.Calls["HcnCreateLoadBalancer"]-before.Calls["HcnCreateLoadBalancer"]
	if release == "15.5" && (modified != 3 || created != 0) || release == "14.0" && (modified != 0 || created != 3) {
		t.Errorf("%d load balancers were modified and %d created", modified, created)
	}

	p.Kill()
	if release == "15.5" || testkit.Full() {
		n.write("web.yaml", web("10.244.2.8"))
		p = n.proxy()
		n.holds(append(endpoints("10.244.2.8"), balancers("10.244.2.8", 1, source)...)...)
		p.Kill()
	}
	if release == "15.5" && !testkit.Full() {
		return
	}
	if out, err := n.Try(n.Env, "wine", l.exe, "--cleanup"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
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
// network is named by the environment, and what HNS cannot do is said. A manifest that is deleted takes none
// of the same name in another directory along: Windows does not tell directories apart by number.
func (l *lab) servesLoadBalancer(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "15.5")
	n.flags = slices.DeleteFunc(n.flags, func(f string) bool { return strings.HasPrefix(f, "--network-name=") })
	n.flags, n.Env = append(n.flags, "--forward-healthcheck-vip", "--root-hnsendpoint-name=pod1"), append(n.Env, "KUBE_NETWORK="+wine.Network)
	n.write("lb/service.yaml", lb)
	n.write("web/service.yaml", web("10.244.2.6"))
	p := n.proxy()
	lines := []string{"endpoint remote 10.244.2.6",
		"balancer 10.96.0.90 protocol 6 port 80 to 10.244.1.5 10.244.2.6 port 8080 flags 0 mapping 0 distribution 0 source -",
		"balancer 203.0.113.9 protocol 6 port 80 to 10.244.1.5 port 8080 flags 1 mapping 28 distribution 0 source -",
		"balancer 203.0.113.9 protocol 6 port 32000 to 10.244.1.5 port 32000 flags 0 mapping 12 distribution 0 source -",
		"balancer * protocol 6 port 30090 to 10.244.1.5 port 8080 flags 1 mapping 18 distribution 0 source -",
	}
	n.holds(append(balancers("10.244.2.6", 0, "-"), lines...)...)
	testkit.Until(t, func() bool { return p.Logged("does not look at the source of connections") })

	before := n.HNS.State()
	if err := os.Remove(filepath.Join(n.manifests, "web", "service.yaml")); err != nil {
		t.Fatal(err)
	}
	n.holds(lines...)
	n.settled()
	after := n.HNS.State()
	for function, want := range map[string]int{"HcnDeleteLoadBalancer": 3, "HcnCreateLoadBalancer": 0} {
		if got := after.Calls[function] - before.Calls[function]; got != want {
			t.Errorf("when a manifest is deleted, %s is called %d times, not %d", function, got, want)
		}
	}
}

// waitsForHNS: without HNS the proxy says so, in its log and on /healthz, and waits; when HNS is there again
// it serves what was asked for meanwhile.
func (l *lab) waitsForHNS(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "15.5")
	n.write("web.yaml", web("10.244.2.6"))
	n.Away()
	health := n.FreeAddress()
	p := n.proxy("--healthz-bind-address="+health, "--iptables-sync-period=5s")
	testkit.Until(t, func() bool { return p.Logged("HNS is not running") })
	n.Back()
	n.holds(served("10.244.2.6")...)
	testkit.Until(t, func() bool { return n.health(health) == http.StatusOK })

	n.Away()
	n.write("web.yaml", web("10.244.2.6", "10.244.2.7"))
	testkit.Until(t, func() bool { return n.health(health) == http.StatusServiceUnavailable })
	time.Sleep(testkit.Extent(0, 0, time.Minute)) // nothing ends because it takes long
	n.Back()
	n.holds(served("10.244.2.6", "10.244.2.7")...)
	testkit.Until(t, func() bool { return n.health(health) == http.StatusOK })
	n.settled()
}

// health returns the status of /healthz, 0 if there is none.
func (n *node) health(address string) int {
	status, _ := n.Get(address, "/healthz")
	return status
}

// isKilledAtAnyCall: a process that is killed, while HNS makes any of its calls, leaves nothing that the next
// one does not find.
func (l *lab) isKilledAtAnyCall(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "14.0")
	before, now := "10.244.2.7", "10.244.2.6"
	n.write("web.yaml", web(now))
	p := n.proxy()
	n.holds(served(now)...)
	for at := 1; ; at += testkit.Extent(9, 9, 1) {
		n.settled()
		p.Kill()
		before, now = now, before
		n.write("web.yaml", web(now))
		killed := n.killAt(at, served(now))
		p = n.proxy()
		n.holds(served(now)...)
		if !killed {
			t.Logf("a start from other endpoints makes less than %d calls", at)
			break
		}
	}
}

// killAt starts a proxy and kills it while HNS makes one of its calls. It reports false if HNS has what it
// should have before that call.
func (n *node) killAt(call int, lines []string) bool {
	n.Helper()
	reached, killed := make(chan struct{}), make(chan struct{})
	calls := 0
	n.HNS.SetFault(func(fakehns.Call) hns.Code {
		if calls++; calls == call {
			close(reached)
			<-killed
		}
		return 0
	})
	p := n.proxy()
	isReached := false
	testkit.Until(n, func() bool {
		select {
		case <-reached:
			isReached = true
			p.Kill()
			close(killed)
			return true
		default:
			return n.has(lines) == nil
		}
	})
	p.Kill()
	n.HNS.SetFault(nil)
	testkit.Until(n, n.Forsaken) // the call that was under way may still open a handle
	return isReached
}

// answers: the commands ask the proxy through a named pipe, and Services that do not work as they ask for say so.
func (l *lab) answers(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "15.5")
	pipe := `--control-socket=\\.\pipe\` + n.Label
	n.flags = append(slices.DeleteFunc(n.flags, func(f string) bool { return strings.HasPrefix(f, "--control-socket") }), pipe)
	n.write("web.yaml", web("10.244.1.5", "10.244.2.6"))
	if out, err := n.Try(nil, "wine", l.exe, "status", pipe); err == nil || !strings.Contains(out, "no proxy answers on") {
		t.Errorf("without a proxy: %v\n%s", err, out)
	}
	out, _ := n.Try(n.Env, "wine", l.exe, "check", "--node=node1", "--manifests="+wine.Native(n.manifests), "--network-name="+wine.Network)
	for _, want := range []string{"version 15.5 answers", "cbr0 is there, of type L2Bridge", "1 are of other programs"} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
	n.proxy()
	n.holds(served("10.244.1.5", "10.244.2.6")...)
	n.Run(l.exe, "services", pipe) // wine lets the first client of such a pipe wait for ever; Windows does not
	for _, ask := range []struct{ command, want string }{
		{"services", "default/web"},
		{"status", "kernelspace"},
		{"explain default/web", "load balancer 736C7569-"}, // sluice, and what follows from it
		{"explain 198.51.100.7:80", "10.244.2.6:8080"},
		{"explain default/web:odd", "SCTP"},
		{"events", "all Services programmed"},
	} {
		args := append([]string{l.exe}, strings.Fields(ask.command)...)
		out, _ := n.Try(nil, "wine", append(args, pipe)...) // not all of web works
		if strings.Contains(out, "deadline exceeded") {     // it was the first
			out, _ = n.Try(nil, "wine", append(args, pipe)...)
		}
		if !strings.Contains(out, ask.want) {
			t.Errorf("%s does not say %q:\n%s", ask.command, ask.want, out)
		}
	}
}

// chart is the DaemonSet and the configuration of the chart, as Helm renders them.
const chart = "../../release/testdata/windows.yaml"

// runsAsChart: the program takes the command line and the configuration of the chart's pod.
func (l *lab) runsAsChart(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "15.5")
	command, config := chartPod(t)
	path := n.Path(n.Label + ".conf")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, arg := range command {
		name, _, _ := strings.Cut(arg, "=")
		switch name {
		case "--config":
			command[i] = name + "=" + wine.Native(path)
		case "--hostname-override":
			command[i] = name + "=node1"
		}
	}
	n.write("web.yaml", web("10.244.1.5", "10.244.2.6"))
	n.Run(l.exe, append(command[1:], "--manifests="+wine.Native(n.manifests), "--control-socket=",
		"--healthz-bind-address="+n.FreeAddress(), "--metrics-bind-address="+n.FreeAddress())...)
	n.holds(append(balancers("10.244.1.5 10.244.2.6", 1, "-"), "endpoint remote 10.244.2.6")...) // with enableDSR
}

// chartPod returns the command of the pod, and its configuration.
func chartPod(t *testing.T) (command []string, config string) {
	t.Helper()
	text, err := os.ReadFile(chart)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o struct {
			Kind string
			Data map[string]string
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ConfigMap":
			config = o.Data["config.conf"]
		case "DaemonSet":
			command = o.Spec.Template.Spec.Containers[0].Command
		}
	}
	if len(command) < 3 || config == "" {
		t.Fatalf("%s has the command %q, and the configuration %q", chart, command, config)
	}
	return command, config
}

// runsAsService: the service control manager starts the proxy, and ends it; load balancers stay. Beside it another
// one serves node ports by sockets.
func (l *lab) runsAsService(t *testing.T) {
	n := l.newNode(t, hns.L2Bridge, "15.5")
	n.ServeServices()
	n.write("web.yaml", web("10.244.2.6"))
	config := n.Path("config.yaml")
	text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
hostnameOverride: node1
windowsRunAsService: true
healthzBindAddress: %s
metricsBindAddress: %s
winkernel: {networkName: %s}
`, n.FreeAddress(), n.FreeAddress(), wine.Network)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := strings.Join([]string{wine.Native(l.exe), "--config=" + wine.Native(config), "--manifests=" + wine.Native(n.manifests), "--page=false", "--control-socket="}, " ")
	// Services end with the last program that is none.
	n.sandbox()
	n.Machine.Run("wine", "sc", "create", "kube-proxy", "binPath=", bin)
	n.Machine.Run("wine", "sc", "start", "kube-proxy")
	n.holds(served("10.244.2.6")...)
	if out := n.Machine.Run("wine", "sc", "query", "kube-proxy"); !strings.Contains(out, "RUNNING") {
		t.Errorf("sc query says\n%s", out)
	}
	n.Machine.Run("wine", "sc", "stop", "kube-proxy")
	testkit.Until(t, func() bool { return strings.Contains(n.Machine.Run("wine", "sc", "query", "kube-proxy"), "STOPPED") })
	n.holds(served("10.244.2.6")...)
	n.Machine.Run("wine", "sc", "delete", "kube-proxy")
}

// testsPackages runs the tests of packages that know no system.
func (l *lab) testsPackages(t *testing.T) {
	packages := strings.Fields(testkit.Extent("", "base/backoff base/filewatch model observe/health", pure))
	dir := "tests"
	if err := os.Mkdir(l.Path(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"test", "-vet=off", "-ldflags=-s -w", "-c"}
	for _, p := range packages {
		arguments = append(arguments, "sluice/internal/"+p)
	}
	l.For(t).Build(dir, arguments...)
	for _, p := range packages {
		program := filepath.Join(l.Path(dir), filepath.Base(p)+".test.exe")
		// They run where their files are.
		if text, err := l.For(t).Try(nil, "env", "-C", filepath.Join("../../internal", p), "wine", program, "-test.short"); err != nil || !strings.Contains(text, "PASS") {
			t.Errorf("%s: %v\n%s", p, err, text)
		}
	}
}

// pure are the packages whose tests need nothing that only Linux has. Left out are those of
//   - base/regularfile, source/kubernetes and source/manifest: they make links, pipes and devices, and wine has none;
//     tests of source/manifest were also seen to stand still there;
//   - base/httpserver: of a flood of connections, wine refuses some;
//   - dataplane/relay and observe/loopback: with wine, answers of UDP come from 127.0.0.1 whichever address of the
//     loopback a socket has; and silence and devices are of Linux alone;
//   - dataplane/relay and dataplane/sandbox: with wine, a connection that is reset while it is read from is at its end;
//   - answer/control and answer/question: they ask at the path of a socket, and Windows has pipes, as TestWindows;
//   - config, mode and answer/web: modes, and connections that are tried, are of Linux.
//
// Those of cli, proxy and source/host were not tried.
const pure = `base/backoff base/filewatch base/inet base/notify base/prefetch base/printable base/spelling base/yamlsyntax
	model plan engine source kernel/hns kernel/hns/fakehns dataplane dataplane/kernelspace oracle oracle/randomworld
	answer/diff answer/explain answer/listing answer/output answer/services answer/status
	observe/ejection observe/evidence observe/health observe/history observe/nodecondition observe/nodeproblem
	observe/telemetry/perservice observe/verdict testkit`
