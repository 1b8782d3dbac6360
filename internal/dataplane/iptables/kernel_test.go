package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/iptables"
	"sluice/internal/model"
	"sluice/internal/netns/netnstest"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// Shared by the tests of all dataplanes.
var (
	ok        = dataplanetest.OK
	prefixes  = testkit.Prefixes
	endpoints = dataplanetest.Endpoints
	key       = dataplanetest.Key
)

// kernel is the network namespace of a test.
type kernel struct {
	t       testing.TB
	ns      *netnstest.Namespace
	variant iptables.Variant
}

func newKernel(t testing.TB, v iptables.Variant) *kernel {
	t.Helper()
	return &kernel{t, netnstest.New(t), v}
}

// inEachVariant runs a test with each variant, in parallel, in kernels of their own.
func inEachVariant(t *testing.T, test func(t *testing.T, k *kernel)) {
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			test(t, newKernel(t, v))
		})
	}
}

func (k *kernel) run(input, program string, args ...string) string {
	k.t.Helper()
	return k.ns.Run(k.t, input, program, args...)
}

// iptables runs iptables of the kernel's variant with those arguments.
func (k *kernel) iptables(args string) string {
	k.t.Helper()
	return k.run("", "iptables-"+k.variant.String(), strings.Fields(args)...)
}

// dump lists the tables that we have chains in, of both families, without counters.
func (k *kernel) dump() string {
	k.t.Helper()
	var b strings.Builder
	for _, command := range []string{"iptables", "ip6tables"} {
		for _, table := range iptables.TableNames {
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
	d, err := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD(), Variant: k.variant})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d
}

// remove calls Remove in the namespace.
func (k *kernel) remove() {
	k.t.Helper()
	err := k.ns.Do(func() error { return Remove(k.t.Context(), dataplane.RemoveOptions{Logger: logr.Discard()}) })
	if err != nil {
		k.t.Fatal(err)
	}
}

// settings are those of a node with everything enabled.
func settings() plan.Settings {
	s := dataplanetest.Settings()
	s.DropInvalid = true
	return s
}

func name(s string) model.Name { return model.Name{Namespace: "test", Name: s} }

// variety has a frontend of every kind, in both families.
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
		local := &plan.Route{Endpoints: fam.pool[:1], Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoint}}
		add("web", plan.Frontend{Key: key(fam.cluster+":80", model.TCP), Route: all, Masquerade: plan.MasqueradeOffCluster})
		add("dns", plan.Frontend{Key: key(fam.cluster+":53", model.UDP), Route: all, Affinity: 10800})
		add("sctp", plan.Frontend{Key: key(fam.cluster+":99", model.SCTP)})
		add("gone", plan.Frontend{Key: key(fam.cluster+":98", model.TCP), Route: plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoint}}})
		add("lb", plan.Frontend{Key: key(fam.lb+":443", model.TCP), Kind: plan.LoadBalancerIP, Route: all, Outside: local,
			Masquerade: plan.MasqueradeNode, Filtered: true, Sources: fam.sources})
		add("lb", plan.Frontend{Key: key(fam.any+":30080", model.TCP), Kind: plan.NodePort, Route: all,
			Outside: &plan.Route{Empty: plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoint}}, Masquerade: plan.MasqueradeNode})
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
	inEachVariant(t, func(t *testing.T, k *kernel) {
		ctx := context.Background()
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

// The chains of a family that the node no longer serves are removed.
func TestUnservedFamilyIsRemoved(t *testing.T) {
	inEachVariant(t, func(t *testing.T, k *kernel) {
		d := k.dataplane()
		ok(t, d.Reconcile(t.Context(), variety()))
		want := k.iptables("-t nat -S")
		desired := variety()
		desired.Settings.NoIPv6 = true
		ok(t, d.Reconcile(t.Context(), desired))
		if got := k.run("", "ip6tables-"+k.variant.String()+"-save"); strings.Contains(got, "KUBE-") {
			t.Errorf("IPv6 still has\n%s", got)
		}
		if got := k.iptables("-t nat -S"); got != want {
			t.Errorf("IPv4 has\n%s\nwant\n%s", got, want)
		}
		if good, err := d.Verify(t.Context()); err != nil || !good {
			t.Errorf("Verify says %v, %v", good, err)
		}
	})
}
