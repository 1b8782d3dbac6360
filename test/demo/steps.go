//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// steps are the steps of the demo.
var steps = []step{
	{"The proxy starts, on a copy of the manifests in examples/", (*demo).showStart},
	{"Connections are spread over the endpoints", (*demo).showBalance},
	{"Who sees the client's own address", (*demo).showSources},
	{"A client stays with its endpoint, if its Service says so", (*demo).showAffinity},
	{"An endpoint is removed from web.yaml, under traffic", (*demo).showRemoval},
	{"All endpoints are removed", (*demo).showEmpty},
	{"The proxy ends, and traffic goes on", (*demo).showEnd},
}

// step is a part of the demo.
type step struct {
	title string
	show  func(*demo, context.Context) error
}

// The addresses of the examples.
var (
	web4      = netip.MustParseAddrPort("10.96.0.80:80")
	web6      = netip.MustParseAddrPort("[fd00:10:96::80]:80")
	webNode4  = netip.MustParseAddrPort("192.0.2.10:30080")
	webNode6  = netip.MustParseAddrPort("[2001:db8::10]:30080")
	shop      = netip.MustParseAddrPort("198.18.0.81:80")
	nameSvc   = netip.MustParseAddrPort("10.96.0.10:53")
	thirdPod4 = "10.244.1.3"
	thirdPod6 = "fd00:10:244:1::3"
)

func tcp(from string, to netip.AddrPort) lab.Flow {
	return lab.Flow{From: from, Protocol: lab.TCP, To: to}
}

func repeated(f lab.Flow, times int) []lab.Flow {
	flows := make([]lab.Flow, times)
	for i := range flows {
		flows[i] = f
	}
	return flows
}

func (d *demo) showStart(ctx context.Context) error {
	begun := time.Now()
	cidrs := fmt.Sprintf("%v,%v", lab.ClusterCIDRs[0], lab.ClusterCIDRs[1])
	proxy, err := d.lab.StartProxy(lab.ProxyOptions{
		Binary: d.binary, Manifests: d.manifests, Flags: []string{"--cluster-cidr", cidrs, "--control-socket", d.socket},
	})
	if err != nil {
		return err
	}
	d.proxy = proxy
	if err := d.await(ctx, tcp("pod1", web4), lab.Answered); err != nil {
		return err
	}
	d.say("kube-proxy --manifests %s --hostname-override node1 --cluster-cidr %s", d.manifests, cidrs)
	d.say("From the start of the process to the first answer of a Service: %v", round(time.Since(begun)))
	return nil
}

// await tries a flow until it has a certain outcome.
func (d *demo) await(ctx context.Context, f lab.Flow, want lab.Kind) error {
	ctx, cancel := testkit.WithTimeout(ctx, testkit.Timeout)
	defer cancel()
	f.Timeout = lab.ShortTimeout
	for {
		o := d.lab.Connect(ctx, f)
		if o.Kind == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%v is not %s in time: it is %v", f, want, o)
		case <-time.After(time.Millisecond):
		}
	}
}

func (d *demo) showBalance(ctx context.Context) error {
	const connections = 600
	flows := []lab.Flow{tcp("pod1", web4), tcp("pod1", web6), tcp("client", webNode4), tcp("client", webNode6)}
	labels := []string{"pod1 to ClusterIP, IPv4", "pod1 to ClusterIP, IPv6", "client to node port, IPv4", "client to node port, IPv6"}
	d.say("Service web, %d connections each. Answers by pod:\n", connections)
	counts := make([]map[string]int, len(flows))
	for i, f := range flows {
		counts[i] = tally(d.lab.Probe(ctx, repeated(f, connections)))
	}
	table(d.out, crossTable(labels, counts))
	return nil
}

func (d *demo) showSources(ctx context.Context) error {
	cases := []struct {
		flow lab.Flow
		why  string
	}{
		{tcp("remote2", web4), "pods keep their addresses inside the cluster"},
		{tcp("client", webNode4), "policy Cluster: the answer must come back through this node"},
		{tcp("client", shop), "policy Local: the client is served here and keeps its address"},
	}
	rows := [][]string{{"from", "to", "answered by", "which saw", ""}}
	for _, c := range cases {
		o := d.lab.Connect(ctx, c.flow)
		if o.Kind != lab.Answered {
			return fmt.Errorf("%v: %v", c.flow, o)
		}
		seen := o.Source.Addr().String()
		if owner := d.lab.Owner(o.Source.Addr()); owner != nil {
			seen = fmt.Sprintf("%s (%s)", owner.Name, seen)
		}
		rows = append(rows, []string{c.flow.From, c.flow.To.String(), o.By, seen, c.why})
	}
	table(d.out, rows)
	return nil
}

func (d *demo) showAffinity(ctx context.Context) error {
	clients := []string{"pod1", "pod2", "pod3", "remote1", "remote2"}
	d.say("Service names, UDP with session affinity, 50 questions each. Answers by pod:\n")
	counts := make([]map[string]int, len(clients))
	for i, client := range clients {
		f := lab.Flow{From: client, Protocol: lab.UDP, To: nameSvc}
		// One after another: a client with concurrent requests has no endpoint yet.
		for range 50 {
			for who := range tally([]lab.Outcome{d.lab.Connect(ctx, f)}) {
				if counts[i] == nil {
					counts[i] = map[string]int{}
				}
				counts[i][who]++
			}
		}
	}
	table(d.out, crossTable(clients, counts))
	return nil
}

func (d *demo) showEmpty(ctx context.Context) error {
	_, undo, err := d.keepLines("web.yaml", func(line string) bool { return !strings.HasPrefix(line, "- {addresses:") })
	if err != nil {
		return err
	}
	if err := d.await(ctx, tcp("pod1", web4), lab.Refused); err != nil {
		return err
	}
	o := d.lab.Connect(ctx, tcp("pod1", web4))
	d.say("A connection to web is now %s after %v: no client waits for a Service that does not exist.", o.Kind, round(o.RTT))
	if err := d.showWhy(ctx); err != nil {
		return err
	}
	if err := undo(); err != nil {
		return err
	}
	if err := d.await(ctx, tcp("pod1", web4), lab.Answered); err != nil {
		return err
	}
	d.say("The endpoints are back, and web answers again.")
	return nil
}

// showWhy asks the proxy why web does not answer.
func (d *demo) showWhy(ctx context.Context) error {
	d.say("Why? kube-proxy explain default/web:80 says\n")
	text, err := exec.CommandContext(ctx, d.binary, "explain", "default/web:80", "--control-socket", d.socket).Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err // it exits with 1 if a Service does not work
	}
	for line := range strings.Lines(string(text)) {
		d.say("  %s", strings.TrimSuffix(line, "\n"))
	}
	d.say("")
	return nil
}

func (d *demo) showEnd(ctx context.Context) error {
	if err := d.proxy.Stop(); err != nil {
		return err
	}
	counts := tally(d.lab.Probe(ctx, repeated(tcp("client", webNode4), 300)))
	d.say("The proxy has ended, as SIGTERM asks for; the rules stay. 300 more connections to the node port:\n")
	table(d.out, crossTable([]string{"client to node port"}, []map[string]int{counts}))
	node, err := d.lab.Host("node1")
	if err != nil {
		return err
	}
	if _, err := node.Run(ctx, lab.Command{Args: []string{d.binary, "--cleanup"}}); err != nil {
		return err
	}
	rules, err := node.Run(ctx, lab.Command{Args: []string{"nft", "list", "ruleset"}})
	if err != nil {
		return err
	}
	if strings.TrimSpace(rules) != "" {
		return errors.New("kube-proxy --cleanup left rules behind:\n" + rules)
	}
	fmt.Fprintln(d.out)
	d.say("kube-proxy --cleanup: node1 has no rules any more.")
	return nil
}

// round rounds a duration for a sentence.
func round(t time.Duration) time.Duration {
	if t < 10*time.Millisecond {
		return t.Round(10 * time.Microsecond)
	}
	return t.Round(time.Millisecond)
}
