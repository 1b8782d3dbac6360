//go:build linux

package windows

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/testkit"
)

// node is a node with a HNS and a directory of manifests, on which proxies run.
type node struct {
	*lab
	name      string
	hns       *fakehns.HNS
	service   net.Listener
	manifests string
	env       []string
	flags     []string
	started   int
}

var nodes atomic.Int32

// newNode returns a node with a network, in which 10.244.1.5 is a pod, and a stranger's load balancer.
func newNode(l *lab, networkType, release string) *node {
	l.Helper()
	n := &node{lab: l, name: fmt.Sprintf("node%d", nodes.Add(1)), hns: &fakehns.HNS{}, service: l.listen()}
	if _, err := fmt.Sscanf(release, "%d.%d", &n.hns.Version.Major, &n.hns.Version.Minor); err != nil {
		l.Fatal(err)
	}
	go func() { _ = serve(n.service, n.hns) }() // until the listener is closed
	network := n.create(hns.Networks, 0, fakehns.Document{"Name": "cbr0", "Type": networkType,
		"Ipams": []any{fakehns.Document{"Subnets": []any{fakehns.Document{"IpAddressPrefix": "10.244.1.0/24"}, fakehns.Document{"IpAddressPrefix": "fd00:10:244:1::/64"}}}},
		"Policies": []any{fakehns.Document{"Type": "RemoteSubnetRoute", "Settings": fakehns.Document{
			"DestinationPrefix": "10.244.2.0/24", "ProviderAddress": "192.0.2.20"}}}})
	n.create(hns.Endpoints, network, fakehns.Document{"Name": "pod", "IpConfigurations": []any{fakehns.Document{"IpAddress": "10.244.1.5"}}})
	id := n.hns.State().Endpoints[0]["ID"]
	n.create(hns.LoadBalancers, 0, fakehns.Document{"FrontendVIPs": []string{"203.0.113.99"}, "HostComputeEndpoints": []any{id},
		"PortMappings": []any{fakehns.Document{"Protocol": 6, "InternalPort": 80, "ExternalPort": 80}}})
	n.hns.DropHandles()

	n.manifests = l.path(n.name + "-manifests")
	if err := os.Mkdir(n.manifests, 0o755); err != nil {
		l.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(n.service.Addr().String())
	n.env = []string{"FAKE_HNS=" + port}
	n.flags = []string{"--manifests=" + native(n.manifests), "--hostname-override=node1", "--network-name=cbr0", "--page=false", "--control-socket="}
	if networkType == hns.Overlay {
		n.flags = append(n.flags, "--source-vip=10.244.1.250")
	}
	return n
}

const stranger = "balancer 203.0.113.99 protocol 6 port 80 to 10.244.1.5 port 80 flags 0 mapping 0 distribution 0 source -"

func (n *node) create(k hns.Kind, in hns.Handle, d fakehns.Document) hns.Handle {
	n.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		n.Fatal(err)
	}
	code, handle, _ := n.hns.Do(fakehns.Call{Function: "HcnCreate" + string(k), Handle: in, Strings: []string{string(text)}})
	if code != 0 {
		n.Fatalf("create %s: %v", text, code)
	}
	return handle
}

// write writes a manifest, as an editor does.
func (n *node) write(name, text string) {
	n.Helper()
	path := filepath.Join(n.manifests, name)
	err := os.WriteFile(path+".new", []byte(text), 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// proxy is a kube-proxy.exe that runs.
type proxy struct {
	*node
	cmd *exec.Cmd
	log string
}

// proxy starts one, on ports of its own.
func (n *node) proxy(flags ...string) *proxy {
	n.Helper()
	n.started++
	p := &proxy{node: n, log: fmt.Sprintf("%s-%d.log", n.name, n.started)}
	args := append([]string{n.exe}, n.flags...)
	args = append(args, "--healthz-bind-address="+n.freePort(), "--metrics-bind-address="+n.freePort())
	p.cmd = n.start(p.log, n.env, "wine", append(args, flags...)...)
	n.Cleanup(func() {
		p.kill()
		if n.Failed() {
			n.Logf("%s:\n%s", p.log, n.read(p.log))
		}
	})
	return p
}

// freePort returns an address of the loopback of the namespace that nobody listens on.
func (n *node) freePort() string {
	l := n.listen()
	defer l.Close()
	return l.Addr().String()
}

// kill ends the process without asking it.
func (p *proxy) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// holds waits until HNS has these lines, and the stranger's.
func (n *node) holds(lines ...string) {
	n.Helper()
	want := strings.Join(sorted(append(lines, stranger, "endpoint local 10.244.1.5")), "\n")
	testkit.Eventually(n, func() error {
		if got := strings.TrimSpace(n.hns.State().Summary()); got != want {
			return fmt.Errorf("HNS has\n%s\nwant\n%s", got, want)
		}
		return nil
	})
	s := n.hns.State()
	if len(s.Violations) > 0 {
		n.Errorf("violations: %q", s.Violations)
	}
}
