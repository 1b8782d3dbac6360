package wine

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
)

// Node is a node of a cluster with a HNS of its own. A machine can be several, one after the other or side
// by side.
type Node struct {
	*Machine
	Label   string // of its files
	HNS     *fakehns.HNS
	Env     []string // by which programs find its HNS
	address string
	service *service
	serving net.Listener
	started int
}

var nodes atomic.Int32

// Network is the name of the network that the pods of a node are in.
const Network = "cbr0"

// NewNode returns a node with a network of a type, in which local pods have endpoints, as a CNI plugin makes
// them. Its HNS is that of a release, such as 15.5.
func (m *Machine) NewNode(networkType, release string, pods ...netip.Addr) *Node {
	m.Helper()
	n := &Node{Machine: m, Label: fmt.Sprintf("node%d", nodes.Add(1)), HNS: &fakehns.HNS{}, address: "127.0.0.1:0"}
	n.service = &service{hns: n.HNS, clients: map[net.Conn]struct{}{}}
	if _, err := fmt.Sscanf(release, "%d.%d", &n.HNS.Version.Major, &n.HNS.Version.Minor); err != nil {
		m.Fatal(err)
	}
	n.Back()
	_, port, _ := net.SplitHostPort(n.address)
	n.Env = []string{"HNS_PORT=" + port}
	subnet := func(prefix string) fakehns.Document { return fakehns.Document{"IpAddressPrefix": prefix} }
	network := n.Create(hns.Networks, 0, fakehns.Document{"Name": Network, "Type": networkType,
		"Ipams": []any{fakehns.Document{"Subnets": []any{subnet("10.244.1.0/24"), subnet("fd00:10:244:1::/64")}}},
		"Policies": []any{fakehns.Document{"Type": "RemoteSubnetRoute", "Settings": fakehns.Document{
			"DestinationPrefix": "10.244.2.0/24", "ProviderAddress": "192.0.2.20", "IsolationId": 4096, "DistributedRouterMacAddress": "02-11-C0-00-02-14"}}}})
	for i, ip := range pods {
		n.Create(hns.Endpoints, network, fakehns.Document{"Name": fmt.Sprintf("pod%d", i+1), "IpConfigurations": []any{fakehns.Document{"IpAddress": ip.String()}}})
	}
	n.HNS.DropHandles()
	return n
}

// Create creates an object, as another program does.
func (n *Node) Create(k hns.Kind, in hns.Handle, d fakehns.Document) hns.Handle {
	n.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		n.Fatal(err)
	}
	code, handle, _ := n.HNS.Do(fakehns.Call{Function: "HcnCreate" + string(k), Handle: in, Strings: []string{string(text)}})
	if code != 0 {
		n.Fatalf("create %s: %v", text, code)
	}
	return handle
}

// Away stops HNS: calls fail as on Windows while the service does not run.
func (n *Node) Away() {
	n.serving.Close()
	n.service.hangUp()
}

// Back starts HNS again, with all that it had.
func (n *Node) Back() {
	n.Helper()
	n.serving = n.Listen(n.address)
	n.address = n.serving.Addr().String()
	go n.service.serve(n.serving)
}

// anybodysPort is where programs find HNS that do not have the environment of a node; dll/hns.c has it.
const anybodysPort = "17018"

// Forsaken reports whether no program is connected to HNS, which then has closed the handles of all.
func (n *Node) Forsaken() bool {
	n.service.mu.Lock()
	defer n.service.mu.Unlock()
	return len(n.service.clients) == 0
}

// ServeServices has the HNS of the node answer services of the machine, too. One node can do so.
func (n *Node) ServeServices() {
	n.Helper()
	go n.service.serve(n.Listen("127.0.0.1:" + anybodysPort))
}

// Proxy is a program that runs on a node.
type Proxy struct {
	*Node
	cmd *exec.Cmd
	log string
}

// Run starts a program of Windows, such as a kube-proxy. It is killed when the test ends.
func (n *Node) Run(program string, flags ...string) *Proxy {
	n.Helper()
	n.started++
	p := &Proxy{Node: n, log: fmt.Sprintf("%s-%d.log", n.Label, n.started)}
	p.cmd = n.Start(p.log, n.Env, "wine", append([]string{program}, flags...)...)
	n.Cleanup(func() {
		p.Kill()
		if n.Failed() {
			log := p.Log()
			n.Logf("%s:\n%s", p.log, log[max(0, len(log)-8<<10):])
		}
	})
	return p
}

// Kill ends the process without asking it.
func (p *Proxy) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Log returns what the program has printed.
func (p *Proxy) Log() string { return p.Read(p.log) }

// Logged reports whether the program has printed a text.
func (p *Proxy) Logged(text string) bool { return strings.Contains(p.Log(), text) }
