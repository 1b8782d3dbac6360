package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netns"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/plan"
)

var variants = []Variant{Legacy, NFT}

// kernel is a network namespace of a test's own.
type kernel struct {
	t       testing.TB
	ns      netns.NsHandle
	variant Variant
}

func newKernel(t testing.TB, v Variant) *kernel {
	t.Helper()
	k := &kernel{t: t, variant: v}
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and nobody
		// else gets to run in its namespace.
		runtime.LockOSThread()
		var err error
		k.ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("making a network namespace (tests of the kernel need root): %v", err)
	}
	t.Cleanup(func() { k.ns.Close() })
	return k
}

// try runs a program in the namespace.
func (k *kernel) try(input, program string, args ...string) (string, error) {
	var out []byte
	err := inNetNS(int(k.ns), func() (err error) {
		c := exec.Command(program, args...)
		c.Stdin = strings.NewReader(input)
		out, err = c.CombinedOutput()
		return err
	})
	return string(out), err
}

func (k *kernel) run(input, program string, args ...string) string {
	k.t.Helper()
	out, err := k.try(input, program, args...)
	if err != nil {
		k.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// iptables runs iptables of the kernel's variant with those arguments.
func (k *kernel) iptables(args string) string {
	k.t.Helper()
	return k.run("", "iptables-"+k.variant.String(), strings.Fields(args)...)
}

// dump lists the tables that we have chains in, of both families, without what
// changes by itself.
func (k *kernel) dump() string {
	k.t.Helper()
	var b strings.Builder
	for _, command := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{nat, filter, mangle} {
			for line := range strings.Lines(k.run("", command+"-"+k.variant.String()+"-save", "-t", table)) {
				if line[0] == ':' {
					line, _, _ = strings.Cut(line, "[")
					line += "\n"
				}
				if line[0] != '#' {
					b.WriteString(line)
				}
			}
		}
	}
	return b.String()
}

func (k *kernel) dataplane() *Dataplane {
	k.t.Helper()
	d, err := New(Options{Logger: logr.Discard(), NetNS: int(k.ns), Variant: k.variant})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d
}

func ok(t testing.TB, r dataplane.Result) dataplane.Result {
	t.Helper()
	if r.Err != nil || len(r.Failed) > 0 {
		t.Fatalf("not programmed: %v %v", r.Err, r.Failed)
	}
	return r
}

// settings of a node with everything switched on.
func settings() plan.Settings {
	return plan.Settings{
		IPv4:           plan.Detector{Sources: prefixes("10.244.0.0/16")},
		IPv6:           plan.Detector{Sources: prefixes("fd00:10:244::/56")},
		NodePortIPs:    addrs("192.0.2.10", "2001:db8::10"),
		MasqueradeMark: 1 << 14,
		DropInvalid:    true,
	}
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func endpoints(eps ...string) []plan.Endpoint {
	var out []plan.Endpoint
	for _, e := range eps {
		out = append(out, plan.Endpoint{AddrPort: netip.MustParseAddrPort(e)})
	}
	return out
}

func key(s string, p model.Protocol) plan.Key {
	ap := netip.MustParseAddrPort(s)
	return plan.Key{Addr: ap.Addr(), Port: ap.Port(), Protocol: p}
}

func name(s string) model.Name { return model.Name{Namespace: "test", Name: s} }

// variety has a frontend of every sort, in both families.
func variety() *plan.Desired {
	d := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	add := func(service string, f plan.Frontend) {
		f.Service, f.Port = name(service), "p"
		d.Frontends[f.Key] = &f
	}
	for _, fam := range []struct {
		cluster, lb, any string
		pool             []plan.Endpoint
		sources          []netip.Prefix
	}{
		{"10.96.0.1", "198.51.100.1", "0.0.0.0", endpoints("10.244.0.1:8080", "10.244.0.2:8080"), prefixes("10.0.0.0/8", "192.0.2.128/25")},
		{"[fd00:10:96::1]", "[2001:db8:1::1]", "[::]", endpoints("[fd00:10:244::1]:8080", "[fd00:10:244::2]:8080"), prefixes("2001:db8::/32")},
	} {
		fam.pool[0].Local = true
		all := plan.Route{Endpoints: fam.pool}
		local := &plan.Route{Endpoints: fam.pool[:1], Empty: plan.Drop}
		add("web", plan.Frontend{Key: key(fam.cluster+":80", model.TCP), Route: all, Masquerade: plan.MasqueradeOffCluster})
		add("dns", plan.Frontend{Key: key(fam.cluster+":53", model.UDP), Route: all, Affinity: 10800})
		add("sctp", plan.Frontend{Key: key(fam.cluster+":99", model.SCTP)})
		add("gone", plan.Frontend{Key: key(fam.cluster+":98", model.TCP), Route: plan.Route{Empty: plan.Drop}})
		add("lb", plan.Frontend{Key: key(fam.lb+":443", model.TCP), Kind: plan.LoadBalancerIP, Route: all, Outside: local,
			Masquerade: plan.MasqueradeNode, Filtered: true, Sources: fam.sources})
		add("lb", plan.Frontend{Key: key(fam.any+":30080", model.TCP), Kind: plan.NodePort, Route: all,
			Outside: &plan.Route{Empty: plan.Drop}, Masquerade: plan.MasqueradeNode})
		add("np", plan.Frontend{Key: key(fam.any+":30081", model.UDP), Kind: plan.NodePort, Route: all, Masquerade: plan.MasqueradeAlways})
		add("empty", plan.Frontend{Key: key(fam.lb+":444", model.TCP), Kind: plan.LoadBalancerIP, Filtered: true, Sources: fam.sources})
		add("empty", plan.Frontend{Key: key(fam.any+":30082", model.TCP), Kind: plan.NodePort})
		add("big", plan.Frontend{Key: key(fam.cluster+":81", model.TCP), Route: plan.Route{Endpoints: many(fam.pool[0].Addr(), 300)}, Affinity: 60})
	}
	d.HealthChecks = map[model.Name]plan.HealthCheck{name("lb"): {Service: name("lb"), Port: 31000}}
	return d
}

// many are n endpoints from an address on.
func many(first netip.Addr, n int) []plan.Endpoint {
	var list []plan.Endpoint
	for range n {
		list = append(list, plan.Endpoint{AddrPort: netip.AddrPortFrom(first, 8080)})
		first = first.Next()
	}
	return list
}

// cluster has n Services with so many endpoints each.
func cluster(n, size int) *plan.Desired {
	d := &plan.Desired{Settings: settings(), Frontends: map[plan.Key]*plan.Frontend{}}
	vip, pod := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.128.0.1")
	for i := range n {
		k := plan.Key{Addr: vip, Port: 80, Protocol: model.TCP}
		eps := many(pod, size)
		if size > 0 {
			pod = eps[size-1].Addr().Next()
		}
		d.Frontends[k] = &plan.Frontend{Key: k, Service: name(fmt.Sprintf("svc-%d", i)), Port: "http",
			Route: plan.Route{Endpoints: eps}, Masquerade: plan.MasqueradeOffCluster}
		vip = vip.Next()
	}
	return d
}

func TestRestartWritesNothing(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			ctx := context.Background()
			k := newKernel(t, v)
			ok(t, k.dataplane().Reconcile(ctx, variety()))
			before := k.dump()
			if r := ok(t, k.dataplane().Reconcile(ctx, variety())); r.Transactions != 0 {
				t.Errorf("an unchanged restart wrote %d transactions with %d rules", r.Transactions, r.Elements)
			}
			if after := k.dump(); after != before {
				t.Errorf("an unchanged restart changed\n%s\nto\n%s", before, after)
			}
		})
	}
}
