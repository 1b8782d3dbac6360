package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
	"sluice/test/cluster/process"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// lane is a lab with a kube-proxy in it.
type lane struct {
	name  string
	lab   *lab.Lab
	proxy *process.Process
}

// apiAddress is the address of the API server on each node.
const apiAddress = "127.0.0.1:6443"

// localByRoute are addresses of node1 that are only in its routing table.
var localByRoute = []netip.Addr{netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("2001:db8:18::100")}

// newLane makes a lab without a proxy.
func (c *contest) newLane() *lane {
	c.Helper()
	l := &lane{lab: lab.Start(c.T)}
	node := l.node(c)
	var listener net.Listener
	if err := node.Do(func() (err error) {
		listener, err = net.Listen("tcp", apiAddress)
		return err
	}); err != nil {
		c.Fatal(err)
	}
	c.server.Serve(listener)
	if c.mode == "iptables" {
		if err := scenario.Modes["iptables-nft"].PrepareNode(c.Context(), l.lab); err != nil {
			c.Fatal(err)
		}
	}
	for _, a := range localByRoute {
		l.onNode(c, fmt.Sprintf("ip route add local %v dev lo", a))
	}
	return l
}

func (l *lane) node(c *contest) *lab.Host {
	c.Helper()
	node, err := l.lab.Host("node1")
	if err != nil {
		c.Fatal(err)
	}
	return node
}

// onNode runs a shell command on the node and returns its output.
func (l *lane) onNode(c *contest, command string) string {
	c.Helper()
	out, err := l.node(c).Run(context.Background(), lab.Command{Args: []string{"sh", "-ec", command}})
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// rules returns all rules of the node.
func (l *lane) rules(c *contest) string {
	if c.mode == "iptables" {
		return l.onNode(c, "iptables-save; ip6tables-save")
	}
	return l.onNode(c, "nft list ruleset")
}

// forget makes the kernel forget the endpoints of clients under session affinity.
func (l *lane) forget(c *contest) {
	c.Helper()
	if c.mode == "iptables" {
		l.onNode(c, "for f in /proc/net/xt_recent/*; do (echo / > $f) 2>/dev/null || [ ! -e $f ]; done")
		return
	}
	testkit.Eventually(c, func() error { // the proxy may remove what was just listed
		script := flushes(l.onNode(c, "nft list sets; nft list maps"))
		if script == "" {
			return nil
		}
		_, err := l.node(c).Run(context.Background(), lab.Command{Args: []string{"nft", script}})
		return err
	})
}

// remembers matches the names of sets and maps of session affinity, upstream's and ours.
var remembers = regexp.MustCompile(`affinity|clients-`)

// flushes are the commands of nft that empty the sets and maps of session affinity in a listing.
func flushes(listing string) string {
	var table, name string // in the words of nft
	var script []string
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "table":
			table = words[1] + " " + words[2]
		case len(words) == 3 && words[2] == "{":
			name = words[0] + " " + table + " " + words[1]
		case len(words) > 1 && words[0] == "flags" && strings.Contains(line, "timeout") && remembers.MatchString(name):
			script = append(script, "flush "+name)
		}
	}
	return strings.Join(script, "; ")
}

// start starts the next lane's proxy.
func (c *contest) start(name, path string, flags ...string) {
	c.Helper()
	l := c.lanes[0]
	if l.proxy != nil {
		l = c.lanes[1]
	}
	l.name = name
	dir := c.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, c.config, 0o600); err != nil {
		c.Fatal(err)
	}
	p, err := process.Start(l.node(c), filepath.Join(dir, "log"), append([]string{path, "--config", config, "--master", "http://" + apiAddress, "-v", "2"}, flags...)...)
	if err != nil {
		c.Fatal(err)
	}
	l.proxy = p
	c.Cleanup(func() {
		if err := p.Kill(); err != nil {
			c.Error(err)
		}
	})
}

// configure turns the random configuration into one that upstream also accepts, and
// writes it. The defaults of the mode are then those of the world.
func (c *contest) configure() {
	c.Helper()
	w := &c.world.Config
	w.MasqueradeAll = c.odd.oneIn(4, masqueradeAll)
	if len(w.NodePortAddresses.Prefixes) > 0 {
		w.NodePortAddresses.Primary = false
	}
	if !c.odd.oneIn(1, oneFamily) {
		bothFamilies(&w.NodePortAddresses)
	}
	rules := map[string]any{"masqueradeAll": w.MasqueradeAll, "minSyncPeriod": "10ms"}
	document := map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": c.mode, "nftables": rules, "iptables": rules,
		"hostnameOverride":  "node1",
		"nodePortAddresses": nodePortAddresses(w.NodePortAddresses),
		"featureGates":      map[string]bool{"AllowServiceExternalIPs": !w.NoExternalIPs},
		"clientConnection":  map[string]any{"contentType": "application/json", "qps": 1000, "burst": 1000},
		// They belong to the machine, not to the namespace.
		"conntrack":   map[string]any{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"oomScoreAdj": 0,
	}
	if c.mode == "iptables" && c.odd.oneIn(3, emptyMode) {
		document["mode"] = ""
	}
	switch w.DetectLocal {
	case plan.DetectClusterCIDR:
		var ranges []string
		for _, p := range w.ClusterCIDRs {
			ranges = append(ranges, p.String())
		}
		document["clusterCIDR"] = strings.Join(ranges, ",")
	case plan.DetectNodeCIDR:
		document["detectLocalMode"] = "NodeCIDR"
	case plan.DetectBridgeInterface:
		document["detectLocalMode"], document["detectLocal"] = "BridgeInterface", map[string]any{"bridgeInterface": w.BridgeInterface}
	case plan.DetectInterfaceNamePrefix:
		document["detectLocalMode"], document["detectLocal"] = "InterfaceNamePrefix", map[string]any{"interfaceNamePrefix": w.InterfaceNamePrefix}
	}
	var err error
	if c.config, err = json.MarshalIndent(document, "", "  "); err != nil {
		c.Fatal(err)
	}
	if a := &w.NodePortAddresses; c.mode == "iptables" && !a.All && !a.Primary && len(a.Prefixes) == 0 {
		a.All = true
	}
}

// bothFamilies adds a range of the family that the others lack.
func bothFamilies(a *plan.NodePortAddresses) {
	for _, one := range []string{"192.0.2.10/32", "2001:db8::10/128"} {
		p := netip.MustParsePrefix(one)
		sameFamily := func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }
		if len(a.Prefixes) > 0 && !slices.ContainsFunc(a.Prefixes, sameFamily) {
			a.Prefixes = append(a.Prefixes, p)
		}
	}
}

func nodePortAddresses(a plan.NodePortAddresses) []string {
	switch {
	case a.All:
		return []string{"0.0.0.0/0", "::/0"}
	case a.Primary:
		return []string{"primary"}
	}
	out := []string{}
	for _, p := range a.Prefixes {
		out = append(out, p.String())
	}
	return out
}

// The port of the marker shows which Services a proxy knows, and the port of its
// endpoint which slices.
func markerOf(step int) (*model.Service, []*model.Slice) {
	service := &model.Service{Name: marked,
		Ports: []model.ServicePort{{Name: "marker", Protocol: model.TCP, Port: markerPort(step)}}}
	var slices []*model.Slice
	for i, f := range model.Families {
		pod := [2]string{"10.244.1.1", "fd00:10:244:1::1"}[i]
		service.ClusterIPs = append(service.ClusterIPs, markerIPs[i])
		slices = append(slices, &model.Slice{
			Name: model.Name{Namespace: marked.Namespace, Name: "marker-" + f.String()}, Service: marked.Name, Family: f,
			Ports:     []model.SlicePort{{Name: "marker", Protocol: model.TCP, Port: echoPort(step)}},
			Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr(pod), Node: "node1", Conditions: model.Ready | model.Serving}},
		})
	}
	return service, slices
}

var markerIPs = []netip.Addr{netip.MustParseAddr("10.96.0.200"), netip.MustParseAddr("fd00:10:96::c8")}

func markerPort(step int) uint16 { return uint16(1000 + step) }
func echoPort(step int) uint16   { return lab.EchoPorts[step%len(lab.EchoPorts)] }

// await waits until both proxies have programmed the current step.
func (c *contest) await() {
	c.Helper()
	ctx, cancel := testkit.WithTimeout(c.Context(), timeout)
	defer cancel()
	for _, l := range c.lanes {
		for _, ip := range markerIPs {
			flow := lab.Flow{From: "pod2", Protocol: lab.TCP, To: netip.AddrPortFrom(ip, markerPort(c.step)), Timeout: lab.ShortTimeout}
			for {
				o := l.lab.Connect(ctx, flow)
				if o.Kind == lab.Answered && o.Port == echoPort(c.step) {
					break
				}
				select {
				case <-l.proxy.Done:
					c.Fatalf("%s has ended: %v\n%s", l.name, l.proxy.Err, l.proxy.Tail())
				case <-ctx.Done():
					c.Fatalf("%s does not serve %v in step %d: %v\n%s\n%s", l.name, flow, c.step, o, c.config, l.proxy.Tail())
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}
}
