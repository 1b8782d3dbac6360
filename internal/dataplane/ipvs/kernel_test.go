//go:build linux

package ipvs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

// kernel is a network namespace. Kernels without IPVS skip the test.
type kernel struct {
	t  *testing.T
	ns *netnstest.Namespace
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{t, netnstest.New(t)}
	k.run("ip link set lo up; ip addr add 192.0.2.10/24 dev lo; ip addr add 2001:db8::10/64 dev lo nodad")
	return k
}

func (k *kernel) run(script string) string {
	k.t.Helper()
	return k.ns.Run(k.t, "", "sh", "-ec", script)
}

func (k *kernel) open() *Dataplane {
	k.t.Helper()
	d, err := Mode.Open(k.t.Context(), dataplane.Options{Logger: logr.Discard(), NetNS: k.ns.FD()})
	if errors.Is(err, dataplane.ErrUnsupported) {
		k.t.Skip(err)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	return d.(*Dataplane)
}

// dump lists the virtual services and the routing.
func (k *kernel) dump() string {
	k.t.Helper()
	lines := strings.Split(k.run(`ipvsadm -Sn
for f in -4 -6; do ip $f rule; ip $f route show table 51007 2>/dev/null || true; done`), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// services returns n Services with two endpoints each.
func services(n int) *plan.Desired {
	d := &plan.Desired{Settings: dataplanetest.Settings(), Frontends: map[plan.Key]*plan.Frontend{}, ClusterIPs: map[netip.Addr]struct{}{}}
	d.Settings.ExclusiveIPs = true
	d.Settings.ServiceCIDRs = testkit.Prefixes("10.96.0.0/12")
	for i := range n {
		at := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		f := &plan.Frontend{
			Key: plan.Key{Addr: at, Port: 80, Protocol: model.TCP}, Service: model.Name{Namespace: "test", Name: fmt.Sprint(i)},
			Masquerade: plan.MasqueradeOffCluster,
			Route:      plan.Route{Balancer: &plan.Balancer{Default: "rr"}, Endpoints: dataplanetest.Endpoints("10.244.0.1:8080", "10.244.0.2:8080")},
		}
		d.Frontends[f.Key], d.ClusterIPs[at] = f, struct{}{}
	}
	return d
}

// with returns a frontend with other endpoints.
func with(f *plan.Frontend, endpoints ...string) *plan.Frontend {
	changed := *f
	changed.Route.Endpoints = dataplanetest.Endpoints(endpoints...)
	return &changed
}

var first = dataplanetest.Key("10.96.0.0:80", model.TCP)

var manyServices = flag.Int("services", 500, "among how many Services a change is made")

// A change costs as many commands as endpoints change, among many Services.
func TestCommandsOfAChange(t *testing.T) {
	k := newKernel(t)
	d, desired := k.open(), services(*manyServices)
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired))
	for _, step := range []struct {
		name      string
		endpoints []string
		commands  uint64
	}{
		{"added", []string{"10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.3:8080"}, 1},
		{"replaced", []string{"10.244.0.1:8080", "10.244.0.2:8080", "10.244.0.4:8080"}, 3},
		{"removed", []string{"10.244.0.1:8080", "10.244.0.2:8080"}, 2},
	} {
		before := d.writer.Commands()
		dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{with(desired.Frontends[first], step.endpoints...)}}))
		changed := d.writer.Commands()
		if got := changed - before; got != step.commands {
			t.Errorf("%s: %d commands, want %d", step.name, got, step.commands)
		}
	}
	if got := k.dump(); strings.Count(got, "-a -t") != 2**manyServices || strings.Contains(got, "10.244.0.4") {
		t.Errorf("in the end:\n%s", got)
	}
}

// Virtual services of other programs stay, also where a Service has the same address.
func TestForeignServices(t *testing.T) {
	k := newKernel(t)
	d := k.open()
	k.run(`ipvsadm -A -t 10.96.0.0:80 -s wlc; ipvsadm -a -t 10.96.0.0:80 -r 10.9.0.1:1 -m
ipvsadm -A -u 203.0.113.1:53 -s rr; ipvsadm -A -f 7 -s rr -p 300`)
	foreign := k.run("ipvsadm -Sn")
	desired := services(3)
	r := d.Reconcile(t.Context(), desired)
	if err := r.Failed[first]; r.Err != nil || len(r.Failed) != 1 || err == nil || !strings.Contains(err.Error(), "another program has a virtual service of IPVS at 10.96.0.0:80/TCP") {
		t.Fatalf("failed are %v, %v", r.Failed, r.Err)
	}
	lines := func() string {
		var kept []string
		for line := range strings.Lines(k.run("ipvsadm -Sn")) {
			if !strings.Contains(line, "10.96.0.1:80") && !strings.Contains(line, "10.96.0.2:80") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	unchanged := func(when string) {
		t.Helper()
		if diff := cmp.Diff(foreign, lines()); diff != "" {
			t.Errorf("%s, virtual services of others (-before +after):\n%s", when, diff)
		}
	}
	unchanged("after the start")
	if r := d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{with(desired.Frontends[first], "10.244.0.9:8080")}}); r.Err != nil || r.Failed[first] == nil {
		t.Errorf("after a change, failed are %v, %v", r.Failed, r.Err)
	}
	unchanged("after a change")
	d.Close()
	again := k.open()
	again.Reconcile(t.Context(), desired)
	unchanged("after a restart")

	// It is served as soon as the other program gives it up.
	k.run("ipvsadm -D -t 10.96.0.0:80")
	dataplanetest.OK(t, again.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{desired.Frontends[first]}}))
	if got := k.dump(); !strings.Contains(got, "-a -t 10.96.0.0:80 -r 10.244.0.1:8080 -m -w 1") {
		t.Errorf("it is not served:\n%s", got)
	}
}

// What other programs do to ours is noticed and undone.
func TestForeignChangesAreRepaired(t *testing.T) {
	k := newKernel(t)
	d := k.open()
	desired := services(5)
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired))
	want := k.dump()
	for _, script := range []string{
		"ipvsadm -C",
		"ipvsadm -E -t 10.96.0.1:80 -s lc",
		"ipvsadm -e -t 10.96.0.2:80 -r 10.244.0.1:8080 -m -w 0",
		"ipvsadm -a -t 10.96.0.2:80 -r 10.244.0.7:8080 -m -w 5",
		"ip rule del pref 90 ipproto udp",
		"ip -6 rule del pref 89",
		"ip route flush table 51007",
	} {
		k.run(script)
		testkit.Eventually(t, func() error {
			select {
			case <-d.Disturbed():
				return nil
			default:
			}
			if ok, err := d.Verify(t.Context()); err != nil || !ok {
				return err
			}
			return fmt.Errorf("not noticed: %s", script)
		})
		dataplanetest.OK(t, d.Repair(t.Context()))
		if diff := cmp.Diff(want, k.dump()); diff != "" {
			t.Errorf("after %s and repair (-before +after):\n%s", script, diff)
		}
	}
}

var errKilled = errors.New("killed")

// A process that ends after any step leaves a kernel in which packets meet either a
// complete frontend or none, and the next process completes it.
func TestKilledAfterEachStep(t *testing.T) {
	const steps = 7
	other := services(2)
	for k, f := range other.Frontends {
		other.Frontends[k] = with(f, "10.244.0.2:8080", "10.244.0.3:8080")
	}
	random := services(2) // served by the table
	for _, f := range random.Frontends {
		f.Route.Balancer = nil
	}
	for name, test := range map[string]struct{ from, to *plan.Desired }{
		"first":      {nil, services(2)},
		"changed":    {services(2), other},
		"taken over": {random, services(2)},
		"taken down": {services(2), services(0)},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := newKernel(t)
			dataplanetest.OK(t, fresh.open().Reconcile(t.Context(), test.to))
			want := fresh.dump()
			for stop := 0; stop < steps; stop += testkit.Extent(2, 2, 1) {
				k := newKernel(t)
				if test.from != nil {
					d := k.open()
					dataplanetest.OK(t, d.Reconcile(t.Context(), test.from))
					d.Close()
				}
				d := k.open()
				n := 0
				d.afterStep = func() error {
					if n++; n <= stop {
						return nil
					}
					k.complete(name, stop, test.from == nil)
					return errKilled
				}
				if r := d.Reconcile(t.Context(), test.to); !errors.Is(r.Err, errKilled) {
					t.Fatalf("it was not killed after step %d: %v", stop, r.Err)
				}
				d.Close()
				next := k.open()
				dataplanetest.OK(t, next.Reconcile(t.Context(), test.to))
				if diff := cmp.Diff(want, k.dump()); diff != "" {
					t.Errorf("killed after step %d, the next process leaves (-want +got):\n%s", stop, diff)
				}
			}
		})
	}
}

// complete checks that frontends which the table leaves to IPVS have a virtual service
// there, and a route; and at the first start that IPVS serves none that the table does
// not know.
func (k *kernel) complete(name string, step int, first bool) {
	k.t.Helper()
	left := map[string]bool{}
	for _, element := range strings.Split(k.run("nft list table ip sluice 2>/dev/null || true"), ",") {
		if at, verdict, ok := strings.Cut(element, " : goto "); ok && strings.HasPrefix(verdict, "cluster-ipvs") {
			addr := strings.Fields(at[:strings.Index(at, " . tcp")])
			left[addr[len(addr)-1]] = true
		}
	}
	saved, routes := k.run("ipvsadm -Sn"), k.run("ip route show table 51007 2>/dev/null || true")
	for at := range left {
		if !strings.Contains(saved, "-A -t "+at+":80 ") || !strings.Contains(routes, "10.96.0.0/12") {
			k.t.Errorf("%s: after step %d the table leaves %s to IPVS, which has\n%s%s", name, step, at, saved, routes)
		}
	}
	if first && len(left) == 0 && strings.Contains(saved, "-a ") {
		k.t.Errorf("%s: after step %d IPVS serves what the table does not know:\n%s", name, step, saved)
	}
}

// A node without IPVS gets to know what is missing and what to use instead.
func TestWithoutIPVS(t *testing.T) {
	conn, err := ipvs.Dial(0)
	if err == nil {
		conn.Close()
		t.Skip("this kernel has IPVS")
	}
	_, err = Mode.Open(t.Context(), dataplane.Options{Logger: logr.Discard(), NetNS: netnstest.New(t).FD()})
	if !errors.Is(err, dataplane.ErrUnsupported) {
		t.Fatalf("error is %v", err)
	}
	for _, part := range []string{"modprobe ip_vs", "CONFIG_IP_VS", "mode: " + nftables.Mode.Name} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

func TestUnknownScheduler(t *testing.T) {
	k := newKernel(t)
	k.open().Close()
	_, err := Mode.Open(t.Context(), dataplane.Options{Logger: logr.Discard(), NetNS: k.ns.FD(),
		ModeSettings: dataplane.ModeSettings{IPVS: dataplane.IPVS{Scheduler: "fastest"}}})
	if err == nil || !strings.Contains(err.Error(), `scheduler "fastest" cannot be used`) || !strings.Contains(err.Error(), "modprobe ip_vs_fastest") {
		t.Errorf("error is %v", err)
	}
}

// Questions are answered while a commit takes long, and who would have to wait for it can give up.
func TestAnswersDuringCommit(t *testing.T) {
	k := newKernel(t)
	d, desired := k.open(), services(1)
	dataplanetest.OK(t, d.Reconcile(t.Context(), desired))
	at, steps := first, 0
	d.afterStep = func() error {
		steps++
		if described, err := d.Describe(t.Context(), dataplane.Destination{Key: at, IP: at.Addr}, netip.Addr{}); err != nil {
			t.Errorf("after step %d: %+v, %v", steps, described, err)
		}
		if !d.Holds(keyFor(at, at.Addr)) {
			t.Errorf("after step %d: its virtual service is not held", steps)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := d.Forget(ctx, []dataplane.Lost{{Frontend: at}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after step %d: Forget: %v", steps, err)
		}
		return nil
	}
	dataplanetest.OK(t, d.Apply(t.Context(), &plan.Change{Set: []*plan.Frontend{with(desired.Frontends[at], "10.244.0.3:8080")}}))
	if steps == 0 {
		t.Error("no step was taken")
	}
}
