//go:build linux

package lab_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// flowLab is a lab with Services of both families, and a proxy whose configuration changes: "web" has its endpoint
// on the node, "far" on another one.
type flowLab struct {
	*testing.T
	l        *lab.Lab
	node     *lab.Host
	asker    *asker
	dir, etc string
	flags    []string
	proxy    *lab.Proxy
}

func startFlowLab(t *testing.T, flags ...string) *flowLab {
	t.Helper()
	f := &flowLab{T: t, l: lab.Start(t), dir: t.TempDir(), etc: t.TempDir()}
	f.node = f.host("node1")
	asker, socket := newAsker(t, f.l)
	f.asker = asker
	f.flags = append(flags, socket, "--config", filepath.Join(f.etc, "config.yaml"))
	return f
}

func (f *flowLab) host(name string) *lab.Host {
	f.Helper()
	h, err := f.l.Host(name)
	if err != nil {
		f.Fatal(err)
	}
	return h
}

func (f *flowLab) run(on *lab.Host, command string, args ...any) string {
	f.Helper()
	out, err := on.Run(f.Context(), lab.Command{Args: []string{"sh", "-ec", fmt.Sprintf(command, args...)}})
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// configure writes what the configuration says of flow tables.
func (f *flowLab) configure(value string) {
	f.Helper()
	write(f.T, f.etc, "config.yaml", liveConfig+"sluice: {flowTable: "+value+"}\n", 0)
}

// services writes the Services, with these endpoints of web.
func (f *flowLab) services(web ...string) {
	f.Helper()
	text := ""
	for _, s := range []struct {
		name, last string
		port       int
		endpoints  []string
	}{{"web", "20", 8080, web}, {"far", "21", 8080, []string{"remote1"}}, {"bulk", "22", 7777, []string{"pod1"}}} {
		for _, protocol := range []string{"TCP", "UDP"} {
			name := s.name + strings.ToLower(protocol)
			text += fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec:
  type: LoadBalancer
  ipFamilies: [IPv4, IPv6]
  clusterIP: 10.96.0.%[2]s
  clusterIPs: [10.96.0.%[2]s, "fd00:10:96::%[2]s"]
  externalIPs: [198.18.0.%[2]s, "2001:db8:18::%[2]s"]
  ports: [{port: 80, protocol: %[3]s, nodePort: 300%[2]s}]
`, name, s.last, protocol)
			for i, family := range []string{"IPv4", "IPv6"} {
				text += fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
ports: [{port: %[4]d, protocol: %[5]s}]
endpoints: [`, name, i, family, s.port, protocol)
				for _, e := range s.endpoints {
					text += fmt.Sprintf("{addresses: [%q]},", f.host(e).Addrs[i])
				}
				text += "]\n"
			}
		}
	}
	write(f.T, f.dir, "all.yaml", text, 0)
}

// start starts the proxy, and waits until it has programmed everything.
func (f *flowLab) start() {
	f.Helper()
	f.proxy = launch(f.T, f.l, lab.ProxyOptions{Manifests: f.dir, Flags: f.flags})
	settle(f.T, f.proxy, f.dir, 0)
	f.asker.ready()
}

// update changes the endpoints of web, and waits until that is programmed.
func (f *flowLab) update(web ...string) {
	f.Helper()
	mark := f.proxy.Log().Len()
	f.services(web...)
	settle(f.T, f.proxy, f.dir, mark)
}

func (f *flowLab) status(want string) {
	f.Helper()
	f.eventually(func() error {
		if out, errs, _ := f.asker.ask("status"); !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("%s is not in\n%s%s", want, out, errs)
		}
		return nil
	})
}

// metric waits until a metric has a value.
func (f *flowLab) metric(name string, is func(int) bool) {
	f.Helper()
	testkit.Eventually(f, func() error {
		page, err := f.l.Get(lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}, "/metrics")
		if err != nil || page.Status != http.StatusOK {
			return fmt.Errorf("metrics: %d, %v", page.Status, err)
		}
		value := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindStringSubmatch(page.Text)
		if value == nil {
			return fmt.Errorf("there is no metric %s", name)
		}
		if n, err := strconv.Atoi(value[1]); err != nil || !is(n) {
			return fmt.Errorf("metric %s is %s", name, value[1])
		}
		return nil
	})
}

// eventually is testkit.Eventually for what runs commands: in an emulated guest these take long, and pauses nothing.
func (f *flowLab) eventually(holds func() error) {
	f.Helper()
	testkit.Eventually(f, func() error {
		err := holds()
		if err != nil {
			time.Sleep(300 * time.Millisecond)
		}
		return err
	})
}

// hasFlowTables reports whether the kernel of this machine does.
func (f *flowLab) hasFlowTables() bool {
	f.Helper()
	_, err := f.host("client2").Run(f.Context(), lab.Command{Args: []string{"nft", "-f", "-"},
		Input: "table ip probe { flowtable f { hook ingress priority 0; devices = { eth0 }; }; chain c { type filter hook forward priority 0; flow add @f; }; }"})
	return err == nil
}

// A kernel without flow tables is said to have none, and everything works.
func TestFlowTablesOfAKernelWithoutThem(t *testing.T) {
	t.Parallel()
	f := startFlowLab(t)
	if f.hasFlowTables() {
		t.Skip("this kernel has flow tables")
	}
	f.configure("outside")
	f.services("pod1")
	f.start()
	f.status(`flow table +NOT OFFLOADED: the kernel has no flow tables`)
	f.status(`WARNING .*--flow-table: outside: not all is offloaded: .*use a kernel with the modules nf_flow_table`)
	f.metric("sluice_flow_table_devices", func(n int) bool { return n == 0 })
	eventually(t, func() bool { return strings.Contains(f.proxy.Log().String(), "the kernel has no flow tables") })
	web := netip.MustParseAddrPort("198.18.0.20:80")
	if o := f.l.Connect(t.Context(), lab.Flow{From: "client", Protocol: lab.TCP, To: web}); o.By != "pod1" {
		t.Errorf("a client is %v, want answered by pod1", o)
	}
	if rules := f.run(f.node, "nft list ruleset"); strings.Contains(rules, "sluice-flow") {
		t.Errorf("something of a flow table is in\n%s", rules)
	}
	if out, _, _ := f.asker.ask("explain", "198.18.0.20:80"); strings.Contains(out, "flow table ") {
		t.Errorf("explain says that packets pass the rules:\n%s", out)
	}
	check, err := f.node.Run(t.Context(), lab.Command{Args: []string{f.asker.binary, "check", "--manifests", f.dir, "--proxy-mode=nftables", "--flow-table=outside", "--try"}})
	if err == nil || !strings.Contains(check, "flow tables: the kernel has no flow tables") {
		t.Errorf("check: %v\n%s", err, check)
	}

	f.configure("devices")
	f.status(`flow table +NOT OFFLOADED`)
	f.configure(`"off"`)
	testkit.Eventually(t, func() error {
		if out, _, _ := f.asker.ask("status"); strings.Contains(strings.ToLower(out), "flow table") {
			return fmt.Errorf("flow tables that are off are in\n%s", out)
		}
		return nil
	})
	mark := f.proxy.Log().Len()
	f.configure("everywhere")
	eventually(t, func() bool {
		lines, _ := f.proxy.Log().From(mark)
		return strings.Contains(strings.Join(lines, "\n"), `sluice.flowTable: \"everywhere\": not a value for flow tables (use off, outside, `)
	})
}

// Values that mean nothing, and modes without flow tables, are refused before anything is changed.
func TestFlowTableIsRefused(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for flags, want := range map[string]string{
		"--proxy-mode=nftables --flow-table=inside":                    `--flow-table: "inside": not a value for flow tables`,
		"--proxy-mode=nftables --flow-table=outside:":                  `--flow-table: "outside:"`,
		"--proxy-mode=iptables --flow-table=outside":                   "--flow-table: not in iptables mode",
		"--proxy-mode=userspace --flow-table=devices":                  "--flow-table: not in userspace mode",
		"--sandbox --nodeport-addresses=all --flow-table=outside:eth0": "--flow-table: not in",
	} {
		p := launch(t, l, lab.ProxyOptions{Manifests: t.TempDir(), Flags: strings.Fields(flags)})
		eventually(t, func() bool { return strings.Contains(p.Log().String(), want) })
	}
}

// talk has a session ask more often than it takes to be offloaded.
func (f *flowLab) talk(s *lab.Session, by string) {
	f.Helper()
	for range 15 {
		if a, err := s.Ask(); err != nil || by != "" && a.By != by {
			f.Fatalf("a session is answered by %q, %v", a.By, err)
		}
	}
}

// entries lists what connection tracking has of connections to an address.
func (f *flowLab) entries(to netip.AddrPort, protocol lab.Protocol) string {
	f.Helper()
	family := "ipv4"
	if to.Addr().Is6() {
		family = "ipv6"
	}
	return f.run(f.node, "conntrack -L -f %s -p %s --orig-dst %s 2>/dev/null", family, protocol, to.Addr())
}

func (f *flowLab) open(from string, protocol lab.Protocol, to string) (*lab.Session, netip.AddrPort) {
	f.Helper()
	at := netip.MustParseAddrPort(to)
	s, err := f.l.Open(lab.Flow{From: from, Protocol: protocol, To: at, Timeout: lab.DefaultTimeout})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	return s, at
}

// devices waits until both flow tables have these.
func (f *flowLab) devices(want ...string) {
	f.Helper()
	slices.Sort(want)
	f.eventually(func() error {
		for _, family := range []string{"ip", "ip6"} {
			table := f.run(f.node, "nft list table %s sluice-flow 2>&1 || true", family)
			list := regexp.MustCompile(`devices = \{ ([^}]*) \}`).FindStringSubmatch(table)
			if list == nil {
				return fmt.Errorf("there is no flow table with devices in\n%s", table)
			}
			var has []string
			for name := range strings.SplitSeq(list[1], ",") {
				has = append(has, strings.Trim(strings.TrimSpace(name), `"`))
			}
			slices.Sort(has)
			for _, name := range want {
				if !strings.Contains(table, `"`+name+`"`) {
					return fmt.Errorf("%s is in no set of\n%s", name, table)
				}
			}
			if !slices.Equal(has, want) {
				return fmt.Errorf("the flow table of family %s has %q, want %q", family, has, want)
			}
		}
		return nil
	})
	f.Logf("flow tables forward at %q", want)
}

// flowFrontends are where clients outside reach both Services.
var flowFrontends = []struct{ at, by string }{
	{"198.18.0.20:80", "pod1"}, {"[2001:db8:18::20]:80", "pod1"}, {"192.0.2.10:30020", "pod1"}, {"[2001:db8::10]:30020", "pod1"},
	{"198.18.0.21:80", "remote1"}, {"[2001:db8:18::21]:80", "remote1"},
}

// flowDevices are where flow tables of each scope forward, while web has its endpoint at pod1.
var flowDevices = map[string][]string{"outside": {"eth0"}, "devices": {"eth0", "pod1"}}

// Established connections to all kinds of frontends are forwarded by flow tables, and counted in connection
// tracking all the same; through a restart of the proxy, too.
func TestFlowTablesForwardConnections(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"outside", "devices"} {
		t.Run(scope, func(t *testing.T) {
			f := startFlowLab(t)
			if !f.hasFlowTables() {
				t.Skip("this kernel has no flow tables")
			}
			f.configure(scope)
			f.services("pod1")
			f.start()
			f.devices(flowDevices[scope]...)
			var sessions []*lab.Session
			for _, frontend := range flowFrontends {
				for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
					s, at := f.open("client", protocol, frontend.at)
					f.talk(s, frontend.by)
					sessions = append(sessions, s)
					entries := f.entries(at, protocol)
					if strings.Count(entries, "[OFFLOAD]") != 1 {
						t.Errorf("%s to %s is not offloaded: %s", protocol, at, entries)
					}
					before := packetsOf(t, entries)
					f.talk(s, frontend.by)
					testkit.Eventually(t, func() error {
						if now := packetsOf(t, f.entries(at, protocol)); now[0]-before[0] < 15 || now[1]-before[1] < 15 {
							return fmt.Errorf("connection tracking of %s to %s counted %d packets, and then %d", protocol, at, before, now)
						}
						return nil
					})
				}
			}
			direct, at := f.open("remote1", lab.TCP, "10.244.1.1:8080")
			f.talk(direct, "pod1")
			if e := f.entries(at, lab.TCP); strings.Contains(e, "OFFLOAD") {
				t.Errorf("a connection to no Service is offloaded: %s", e)
			}
			f.status(`flow table +` + scope + `, at .*eth0.*: 12 established connections past the rules`)
			f.metric(`sluice_flow_table_connections{ip_family="IPv6"}`, func(n int) bool { return n == 6 })
			f.metric("sluice_flow_table_devices", func(n int) bool { return n >= 1 })
			if out, _, _ := f.asker.ask("explain", "198.18.0.20:80", "--from", "outside"); !strings.Contains(out, "after 20 packets, those that come in at eth0") {
				t.Errorf("explain says nothing of flow tables:\n%s", out)
			}

			handle := regexp.MustCompile(`table ip6? sluice-flow \{ # handle \d+`)
			tables := handle.FindAllString(f.run(f.node, "nft -a list ruleset"), -1)
			if err := f.proxy.Kill(); err != nil {
				t.Fatal(err)
			}
			f.start()
			f.status(`flow table +` + scope + `, at .*eth0.*: 12 established connections past the rules`)
			if now := handle.FindAllString(f.run(f.node, "nft -a list ruleset"), -1); len(now) != 2 || !slices.Equal(tables, now) {
				t.Errorf("a restart makes %q of the tables %q", now, tables)
			}
			f.configure(`"off"`)
			eventually(t, func() bool { return !strings.Contains(f.run(f.node, "nft list ruleset"), "sluice-flow") })
			f.metric("sluice_flow_table_devices", func(n int) bool { return n == 0 })
			for i, s := range sessions {
				f.talk(s, flowFrontends[i/2].by)
			}
			f.configure(scope)
			f.devices(flowDevices[scope]...)
			for i, s := range sessions {
				f.talk(s, flowFrontends[i/2].by)
			}
			if e := f.entries(netip.MustParseAddrPort(flowFrontends[0].at), lab.TCP); !strings.Contains(e, "OFFLOAD") {
				t.Errorf("when they are on again, connections are not offloaded: %s", e)
			}
		})
	}
}

// packetsOf returns how many packets an entry has in both directions.
func packetsOf(t *testing.T, entry string) (n [2]int) {
	t.Helper()
	for i, m := range regexp.MustCompile(`packets=(\d+)`).FindAllStringSubmatch(entry, 2) {
		n[i], _ = strconv.Atoi(m[1])
	}
	return n
}

// Connections whose endpoint leaves end, or go on, as they do without flow tables.
func TestFlowTablesWhenEndpointsLeave(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%t", reset), func(t *testing.T) {
			f := startFlowLab(t, fmt.Sprintf("--reset-removed-endpoints=%t", reset))
			if !f.hasFlowTables() {
				t.Skip("this kernel has no flow tables")
			}
			f.services("pod1")
			f.configure(`"off"`)
			f.start()
			for _, scope := range []string{"outside", "devices"} {
				f.configure(scope)
				f.devices(flowDevices[scope]...)
				f.leave(reset)
				f.update("pod1")
			}
		})
	}
}

// leave replaces the endpoint under offloaded connections.
func (f *flowLab) leave(reset bool) {
	f.Helper()
	var tcp, udp []*lab.Session
	for _, frontend := range flowFrontends[:4] {
		for _, protocol := range []lab.Protocol{lab.TCP, lab.UDP} {
			s, at := f.open("client", protocol, frontend.at)
			f.talk(s, "pod1")
			if e := f.entries(at, protocol); !strings.Contains(e, "OFFLOAD") {
				f.Errorf("%s to %s is not offloaded: %s", protocol, at, e)
			}
			if protocol == lab.TCP {
				tcp = append(tcp, s)
			} else {
				udp = append(udp, s)
			}
		}
	}
	f.update("pod2")
	for i, s := range udp {
		testkit.Eventually(f, func() error {
			if a, err := s.Ask(); err != nil || a.By != "pod2" {
				return fmt.Errorf("UDP to %s is answered by %q, %v, and its endpoint is gone", flowFrontends[i].at, a.By, err)
			}
			return nil
		})
	}
	for i, s := range tcp {
		if !reset {
			f.talk(s, "pod1")
		} else if err := s.Listen(); !errors.Is(err, unix.ECONNRESET) {
			f.Errorf("a client of %s that waits learns: %v", flowFrontends[i].at, err)
		}
	}
}

// Devices that come, go and are renamed are followed; what another program deletes comes back; nothing is left when
// the rules are removed.
func TestFlowTablesFollowTheNode(t *testing.T) {
	t.Parallel()
	f := startFlowLab(t)
	if !f.hasFlowTables() {
		t.Skip("this kernel has no flow tables")
	}
	f.configure("devices")
	f.services("pod1", "remote2")
	f.start()
	f.devices("eth0", "pod1")
	f.update("pod1", "pod2", "remote2")
	f.devices("eth0", "pod1", "pod2")
	f.run(f.node, "ip link set pod2 down && ip link set pod2 name uplink7 && ip link set uplink7 up && ip route replace 10.244.1.2/32 dev uplink7")
	f.devices("eth0", "pod1", "uplink7")
	f.run(f.node, "ip link del uplink7")
	f.devices("eth0", "pod1")
	f.run(f.node, "ip link add late0 type veth peer name late1 && ip link set late0 up && ip route replace 10.244.1.2/32 dev late0")
	f.devices("eth0", "pod1", "late0")
	f.configure("outside:pod1")
	f.devices("pod1")
	f.configure("outside:none")
	f.status(`WARNING .*outside:none: not all is offloaded: no device of this machine is called none`)
	f.configure("outside")
	f.devices("eth0")
	for _, damage := range []string{
		"delete table ip sluice-flow; flush chain ip6 sluice-flow forward",
		"flush set ip sluice-flow frontends; flush set ip6 sluice-flow flow-devices", "flush ruleset",
	} {
		f.run(f.node, "nft '%s'", damage)
		f.eventually(func() error {
			for _, family := range []string{"ip", "ip6"} {
				table := f.run(f.node, "nft list table %s sluice-flow 2>&1 || true", family)
				for _, part := range []string{`elements = { "eth0" }`, "iifname @flow-devices", "ct packets > 20 jump services", ". tcp . 80", "udp . 30021", "flow add @flows"} {
					if !strings.Contains(table, part) {
						return fmt.Errorf("after %q, %q is not in\n%s", damage, part, table)
					}
				}
			}
			return nil
		})
		t.Logf("mended: %s", damage)
	}
	if err := f.proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	f.run(f.node, "%s --cleanup-own", f.asker.binary)
	if rules := f.run(f.node, "nft list ruleset"); strings.Contains(rules, "sluice") {
		t.Errorf("after the cleanup there is\n%s", rules)
	}
}
