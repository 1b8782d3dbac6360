//go:build linux

package soak

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"sluice/internal/answer/control"
	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

const apiAddress = "127.0.0.1:6443"

// node is a lab with a proxy on its node1, and a connection to the API server.
type node struct {
	lab      *lab.Lab
	host     *lab.Host
	dir      string
	api      *fakeapi.Server
	hangUp   func() error // ends the connection to the API server
	proxy    *lab.Proxy
	mode     string // a name in scenario.Modes
	settings settings
	asks     *control.Client
	logs     []string // of earlier proxies, the last few
}

// settings are the fields of the configuration file besides the mode.
type settings struct {
	MasqueradeAll bool
	MasqueradeBit int
	SyncPeriod    string
	MinSyncPeriod time.Duration
	NodePorts     []string
	Detect        string
	Verbosity     int
}

func firstSettings() settings {
	return settings{MasqueradeBit: 14, SyncPeriod: "30s", MinSyncPeriod: 10 * time.Millisecond, NodePorts: []string{"primary"}, Detect: "ClusterCIDR"}
}

// newNode builds a lab with an API server, and no proxy yet.
func newNode(api *fakeapi.Server, mode string, s settings) (*node, error) {
	l, err := lab.New()
	if err != nil {
		return nil, err
	}
	n := &node{lab: l, api: api, mode: mode, settings: s}
	if n.host, err = l.Host("node1"); err == nil {
		n.dir, err = l.TempDir()
	}
	if err == nil {
		n.asks = control.NewClient(n.socket())
		err = n.serve()
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// close removes everything.
func (n *node) close() error {
	if n.asks != nil {
		n.asks.Close()
	}
	if n.hangUp != nil {
		_ = n.hangUp() // it may have been
	}
	return n.lab.Close()
}

// serve makes the API server listen on the node. A process forked while another one
// had the address may hold it until it calls exec.
func (n *node) serve() error {
	var listener net.Listener
	err := testkit.Poll(testkit.Timeout, func() error {
		return n.host.Do(func() (err error) { listener, err = net.Listen("tcp", apiAddress); return err })
	})
	if err == nil {
		n.hangUp = n.api.Serve(listener)
	}
	return err
}

func (n *node) socket() string { return filepath.Join(n.dir, "run", "proxy.sock") }

func (n *node) configFile() string { return filepath.Join(n.dir, "config.yaml") }

// configure writes the configuration file atomically.
func (n *node) configure() error {
	s := n.settings
	rules := map[string]any{"masqueradeAll": s.MasqueradeAll, "masqueradeBit": s.MasqueradeBit,
		"syncPeriod": s.SyncPeriod, "minSyncPeriod": s.MinSyncPeriod.String()}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": scenario.Modes[n.mode].Name, "nftables": rules, "iptables": rules,
		"ipvs":             map[string]any{"syncPeriod": s.SyncPeriod, "minSyncPeriod": s.MinSyncPeriod.String()},
		"hostnameOverride": "node1", "nodePortAddresses": s.NodePorts,
		"detectLocalMode": s.Detect, "detectLocal": map[string]any{"interfaceNamePrefix": lab.PodInterfacePrefix},
		"clusterCIDR":      lab.ClusterCIDRs[0].String() + "," + lab.ClusterCIDRs[1].String(),
		"clientConnection": map[string]any{"qps": 1000, "burst": 1000},
		// They belong to the machine, not to the namespace.
		"conntrack":   map[string]any{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"oomScoreAdj": 0, "logging": map[string]any{"verbosity": s.Verbosity},
	})
	if err != nil {
		return err
	}
	return n.writeConfig(string(text))
}

func (n *node) writeConfig(text string) error {
	if err := os.WriteFile(n.configFile()+"~", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(n.configFile()+"~", n.configFile())
}

// start starts the proxy.
func (n *node) start(ctx context.Context) (err error) {
	if err := scenario.Modes[n.mode].PrepareNode(ctx, n.lab); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	n.proxy, err = n.lab.StartProxy(lab.ProxyOptions{Flags: []string{
		"--config", n.configFile(), "--master", "http://" + apiAddress, "--control-socket", n.socket()}})
	return err
}

// end stops the proxy, and keeps the end of its log.
func (n *node) end(how func(*lab.Proxy) error) error {
	if n.proxy == nil {
		return nil
	}
	err := how(n.proxy)
	n.keepLog()
	n.proxy = nil
	return err
}

// How many logs of earlier proxies are kept, and how many lines of each.
const (
	maxLogs     = 4
	maxLogLines = 60
)

func (n *node) keepLog() {
	lines, _ := n.proxy.Log().From(max(0, n.proxy.Log().Len()-maxLogLines))
	text := ""
	for _, line := range lines {
		text += line + "\n"
	}
	n.logs = append(n.logs, text)
	n.logs = slices.Clone(n.logs[max(0, len(n.logs)-maxLogs):])
}

// run runs a command on the node.
func (n *node) run(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := testkit.WithTimeout(ctx, testkit.Timeout)
	defer cancel()
	return n.host.Run(ctx, lab.Command{Args: args, Input: input})
}

// follows waits until a new connection to the beacon is answered by the pod.
func (n *node) follows(ctx context.Context, pod string, timeout time.Duration) error {
	var last [2]lab.Outcome
	return testkit.Poll(timeout, func() error {
		good := true
		for f, ip := range clusterIP(beacon) {
			flow := lab.Flow{From: "pod2", Protocol: lab.TCP, To: netipPort(ip, 80), Timeout: lab.ShortTimeout}
			last[f] = n.lab.Connect(ctx, flow)
			good = good && last[f].Kind == lab.Answered && last[f].By == pod
		}
		if !good {
			return fmt.Errorf("the beacon is not on %s: IPv4 %v, IPv6 %v", pod, last[0], last[1])
		}
		return nil
	})
}
