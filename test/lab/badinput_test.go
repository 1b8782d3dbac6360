//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

var goodManifests = `
apiVersion: v1
kind: Service
metadata: {name: good, namespace: default}
spec:
  clusterIP: 10.96.0.1
  ports: [{port: 80}]
` + lab.EndpointSlice("IPv4", "good", "", "pod1")

// goodAddress is where that Service answers.
var goodAddress = netip.MustParseAddrPort("10.96.0.1:80")

// dualGood is the same Service in both families, and dualAddresses are what it answers on.
var (
	dualGood = strings.Replace(goodManifests, "clusterIP: 10.96.0.1\n", "clusterIP: 10.96.0.1\n  clusterIPs: [10.96.0.1, \"fd00:10:96::1\"]\n  ipFamilies: [IPv4, IPv6]\n", 1) +
		lab.EndpointSlice("IPv6", "good", "", "pod1")
	dualAddresses = []netip.AddrPort{goodAddress, netip.MustParseAddrPort("[fd00:10:96::1]:80")}
)

// serviceWith returns a manifest of a Service with these lines in its spec, after a
// valid Service.
func serviceWith(spec string) string {
	return `
apiVersion: v1
kind: Service
metadata: {name: bad, namespace: default}
spec:
` + spec
}

func sliceWith(rest string) string {
	return `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: bad-1, namespace: default, labels: {kubernetes.io/service-name: bad}}
` + rest
}

// badInput is a file that is put beside the valid one.
type badInput struct {
	name    string
	content string
	size    int64 // the file is made this long, with a hole
	// log is a pattern that some line of the log must match, empty for none.
	log string
	// answers is an address that must work because of the file, if any.
	answers string
}

var badInputs = []badInput{
	{name: "unknown field", content: serviceWith("  clusterIP: 10.96.0.2\n  clusterIp: 10.96.0.2\n  ports: [{port: 80}]"), log: `bad\.yaml.*clusterIp`},
	{name: "invalid IP", content: serviceWith("  clusterIP: 10.96.0.300\n  ports: [{port: 80}]"), log: `bad\.yaml.*spec\.clusterIP.*10\.96\.0\.300`},
	{name: "invalid port", content: serviceWith("  clusterIP: 10.96.0.2\n  ports: [{port: 70000}]"), log: `bad\.yaml.*spec\.ports\[0\]\.port`},
	{name: "malformed CIDR", content: serviceWith("  clusterIP: 10.96.0.2\n  type: LoadBalancer\n  loadBalancerSourceRanges: [10.0.0.0/33]\n  ports: [{port: 80}]"), log: `bad\.yaml.*loadBalancerSourceRanges\[0\]`},
	{name: "wrong family", content: sliceWith("addressType: IPv6\nports: [{port: 80}]\nendpoints: [{addresses: [10.244.1.1]}]"), log: `bad\.yaml.*endpoints\[0\]\.addresses`},
	{name: "duplicate ports", content: serviceWith("  clusterIP: 10.96.0.2\n  ports: [{name: a, port: 80}, {name: b, port: 80}]"), log: `bad\.yaml.*spec\.ports\[1\]`},
	{name: "duplicate port names", content: serviceWith("  clusterIP: 10.96.0.2\n  ports: [{name: a, port: 80}, {name: a, port: 81}]"), log: `bad\.yaml.*spec\.ports\[1\]\.name`},
	{name: "endpoint in two slices", answers: "10.96.0.2:80", content: serviceWith("  clusterIP: 10.96.0.2\n  ports: [{port: 80}]") +
		"\n---" + sliceWith("addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.1.2]}]") +
		"\n---" + strings.Replace(sliceWith("addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.1.2]}]"), "bad-1", "bad-2", 1)},
	// In nftables mode they come in steps, and in userspace mode they are not in the kernel.
	{name: "65,536 endpoints in one Service", log: `"Programmed a portion".*elements=([0-9]{4,}|1) failed=0|"Programmed".*elements=[0-9]{5,} failed=0`, content: serviceWith("  clusterIP: 10.96.0.2\n  ports: [{port: 80}]") + manyEndpoints(65_536)},
	{name: "1,000 ports in one Service", answers: "10.96.0.2:1999", content: manyPorts(1_000)},
	{name: "empty file"},
	{name: "only comments", content: "# nothing\n---\n# at all\n"},
	{name: "binary file", content: "\x7fELF\x02\x01\x01\x00\x00\x00", log: `bad\.yaml`},
	{name: "100 MB file", size: 100 << 20, log: `bad\.yaml.*too large`},
	{name: "broken YAML", content: "a: [b\nc: d", log: `bad\.yaml`},
	{name: "no kind", content: "spec: {}\n", log: `bad\.yaml.*apiVersion`},
	{name: "same object twice", content: goodManifests, log: `bad\.yaml.*Service default/good.*good\.yaml`},
	{name: "Service without a ClusterIP", content: serviceWith("  ports: [{port: 80}]"), log: `bad\.yaml.*spec\.clusterIP`},
}

// manyEndpoints returns slices with that many endpoints.
func manyEndpoints(n int) string {
	var b strings.Builder
	ip := netip.MustParseAddr("10.200.0.0")
	for slice := range (n + 999) / 1000 {
		b.WriteString("\n---" + strings.Replace(sliceWith("addressType: IPv4\nports: [{port: 8080}]\nendpoints:\n"), "bad-1", fmt.Sprintf("bad-%d", slice), 1))
		for range min(1000, n-slice*1000) {
			fmt.Fprintf(&b, "- {addresses: [%s]}\n", ip)
			ip = ip.Next()
		}
	}
	return b.String()
}

// manyPorts returns a Service with ports from 1000 on, all served by pod2.
func manyPorts(n int) string {
	var service, slice strings.Builder
	service.WriteString("  clusterIP: 10.96.0.2\n  ports:\n")
	slice.WriteString("addressType: IPv4\nendpoints: [{addresses: [10.244.1.2]}]\nports:\n")
	for i := range n {
		fmt.Fprintf(&service, "  - {name: p%d, port: %d}\n", i, 1000+i)
		fmt.Fprintf(&slice, "- {name: p%d, port: 8080}\n", i)
	}
	return serviceWith(service.String()) + "---" + sliceWith(slice.String())
}

// Any file in the directory either gets a clear error or works, and others are not
// affected.
func TestBadInputHarmsOnlyItself(t *testing.T) {
	t.Parallel()
	inEachMode(t, testBadInput)
}

func testBadInput(t *testing.T, mode string) {
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
	good := netip.MustParseAddrPort("10.96.0.1:80")
	settle(t, p, dir, 0)
	answered(t, l, good)
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{{From: "pod3", Protocol: lab.TCP, To: good}}, lab.TrafficOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range badInputs {
		t.Run(in.name, func(t *testing.T) {
			mark := p.Log().Len()
			write(t, dir, "bad.yaml", in.content, in.size)
			settle(t, p, dir, mark)
			if in.answers != "" {
				answered(t, l, netip.MustParseAddrPort(in.answers))
			}
			if lines, _ := p.Log().From(mark); in.log != "" && !regexp.MustCompile(in.log).MatchString(strings.Join(lines, "\n")) {
				t.Errorf("no line of the log matches %s:\n%s", in.log, strings.Join(lines, "\n"))
			}
			answered(t, l, good)
			mark = p.Log().Len()
			if err := os.Remove(filepath.Join(dir, "bad.yaml")); err != nil {
				t.Fatal(err)
			}
			settle(t, p, dir, mark)
		})
	}
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("the good Service was disturbed: %v", count)
	}
}

// write writes a file into the directory atomically.
func write(t *testing.T, dir, name, content string, size int64) {
	t.Helper()
	temp := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(temp, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if size > 0 {
		if err := os.Truncate(temp, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// settle waits until the current directory has been loaded and programmed.
func settle(t *testing.T, p *lab.Proxy, dir string, mark int) {
	t.Helper()
	ctx, cancel := testkit.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	digest, err := lab.Digest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitFor(ctx, digest, mark); err != nil {
		t.Fatalf("%v\n%s", err, p.Log())
	}
}

func answered(t *testing.T, l *lab.Lab, to netip.AddrPort) {
	t.Helper()
	if o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: to}); o.Kind != lab.Answered {
		t.Errorf("%v: %v", to, o)
	}
}
