//go:build linux

package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
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
	d := New(Options{Logger: logr.Discard(), NetNS: k.ns.FD(), Variant: k.variant})
	k.t.Cleanup(func() { d.Close() })
	return d
}

// reconcileOnce programs what is desired by a dataplane that ends at once: many that stay
// would list their tables whenever one of them writes.
func (k *kernel) reconcileOnce(desired *plan.Desired) dataplane.Result {
	k.t.Helper()
	d := k.dataplane()
	defer d.Close()
	return ok(k.t, d.Reconcile(k.t.Context(), desired))
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

// variety adds pools that are too big for one chain to what tests of all dataplanes
// program.
func variety() *plan.Desired {
	d := dataplanetest.Variety()
	for at, first := range map[string]string{"10.96.0.1:81": "10.244.0.1", "[fd00:10:96::1]:81": "fd00:10:244::1"} {
		k := key(at, model.TCP)
		d.Frontends[k] = &plan.Frontend{Key: k, Service: name("big"), Port: "p", Affinity: 60,
			Route: plan.Route{Endpoints: many(netip.MustParseAddr(first), 300)}}
	}
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
