//go:build linux

package lab_test

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The parts of a plain node's work on an established connection that may be left with a flow table, for packets
// that it passes on to another node, and for those of its own pods. On 6.12 were measured 0.59 and 0.68 of IPv4 and 0.43
// and 0.45 of IPv6 for the first ones, and 0.54, and 0.31 and 0.38, for the others.
const (
	passingBar = 0.75
	ownBar     = 0.6
)

// What flow tables save, in a guest in which a nanosecond is an instruction, so that it is the same each time.
func TestFlowTableCost(t *testing.T) {
	testkit.OnlyFull(t, "it is a measurement")
	if !testkit.InGuest() {
		t.Skip("a real processor is not precise enough")
	}
	f := startFlowLab(t)
	if !f.hasFlowTables() {
		t.Skip("this kernel has no flow tables")
	}
	f.configure(`"off"`)
	f.services("pod1")
	f.start()
	type path struct {
		name, to, host, device string
		bar                    float64
	}
	paths := []path{
		{"passed on, IPv4", "198.18.0.21:80", "node2", "eth0", passingBar},
		{"passed on, IPv6", "[2001:db8:18::21]:80", "node2", "eth0", passingBar},
		{"own pod, IPv4", "198.18.0.20:80", "pod1", "eth0", ownBar},
		{"own pod, IPv6", "[2001:db8:18::20]:80", "pod1", "eth0", ownBar},
	}
	plain := map[string]time.Duration{}
	for _, scope := range []string{`"off"`, "outside", "devices"} {
		f.configure(scope)
		if scope == `"off"` {
			eventually(t, func() bool { return !strings.Contains(f.run(f.node, "nft list ruleset"), "sluice-flow") })
		} else {
			f.devices(flowDevices[scope]...)
		}
		for _, p := range paths {
			s, at := f.open("client", lab.UDP, p.to)
			f.talk(s, "")
			if offloaded := strings.Contains(f.entries(at, lab.UDP), "OFFLOAD"); offloaded != (scope != `"off"`) {
				t.Errorf("flow table %s: %s is offloaded: %t", scope, p.name, offloaded)
			}
			part := f.flood(s, p.host, p.device, 8080) - f.flood(s, "node1", "eth0", at.Port())
			if scope == `"off"` {
				plain[p.name] = part
				t.Logf("%s: %d instructions of node1 for a packet", p.name, part)
				continue
			}
			ratio := float64(part) / float64(plain[p.name])
			t.Logf("%s, flow table %s: %d, %.2f of plain", p.name, scope, part, ratio)
			if ratio > p.bar {
				t.Errorf("%s, flow table %s: %.2f of plain, want at most %.2f", p.name, scope, ratio, p.bar)
			}
		}
	}
}

// flood sends packets of a session as far as a device, where they are dropped, and returns what one takes: the least
// of a few times, because what the proxy does meanwhile counts, too.
func (f *flowLab) flood(s *lab.Session, host, device string, port uint16) time.Duration {
	f.Helper()
	const packets, size, times = 3000, 64, 7
	at := f.host(host)
	f.run(at, `nft -f - <<X
table netdev sink {
	counter got { }
	chain in { type filter hook ingress device "%s" priority -400; udp dport %d counter name got drop; }
}
X`, device, port)
	defer f.run(at, "nft delete table netdev sink")
	took := time.Hour
	for range times {
		once, err := s.Flood(packets, size)
		if err != nil {
			f.Fatal(err)
		}
		took = min(took, once)
	}
	out := f.run(at, "nft list counter netdev sink got")
	got := 0
	if n := regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(out); n != nil {
		got, _ = strconv.Atoi(n[1])
	}
	if got < times*packets*99/100 {
		f.Fatalf("%d of %d packets reached %s of %s", got, times*packets, device, host)
	}
	return took / packets
}

// What a download in packets of 1500 bytes costs, from a pod of the node, with the usual limit of what a socket may
// have under way in the machine and without one. Forwarding by rules takes packets away from their socket where they
// come in, and a flow table does not (TCP small queues): on 6.12 the limit makes no difference.
func TestFlowTableDownload(t *testing.T) {
	testkit.OnlyFull(t, "it is a measurement")
	if !testkit.InGuest() {
		t.Skip("a real processor is not precise enough")
	}
	f := startFlowLab(t)
	if !f.hasFlowTables() {
		t.Skip("this kernel has no flow tables")
	}
	f.configure(`"off"`)
	f.services("pod1")
	f.start()
	pod := f.host("pod1")
	f.run(pod, "ip link set eth0 gso_max_segs 1")
	const size = 8 << 20
	server, err := f.serve("pod1", "10.244.1.1:7777", size)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, limit := range []int{1 << 20, 1 << 28} {
		f.run(pod, "echo %d >/proc/sys/net/ipv4/tcp_limit_output_bytes", limit)
		for _, scope := range []string{`"off"`, "outside", "devices"} {
			f.configure(scope)
			if scope == `"off"` {
				eventually(t, func() bool { return !strings.Contains(f.run(f.node, "nft list ruleset"), "sluice-flow") })
			} else {
				f.devices(flowDevices[scope]...)
			}
			for range 2 {
				before, idle := f.segments("pod1", "client"), idleTime(t)
				took, err := f.download("client", "198.18.0.22:80", size)
				if err != nil {
					t.Fatal(err)
				}
				after := f.segments("pod1", "client")
				t.Logf("at most %d bytes under way, flow table %s: %d ns/KiB, of which %d idle; segments of the pod %d, of the client %d, repeated %d",
					limit, scope, took.Nanoseconds()/(size>>10), (idleTime(t)-idle).Nanoseconds()/(size>>10),
					after[0]-before[0], after[1]-before[1], after[2]-before[2])
			}
		}
	}
}

// serve sends that many bytes to who connects to an address of a host.
func (f *flowLab) serve(host, at string, size int) (l net.Listener, err error) {
	h := f.host(host)
	if doErr := h.Do(func() error { l, err = net.Listen("tcp", at); return err }); doErr != nil {
		return nil, doErr
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(make([]byte, size)) // the client notices
			c.Close()
		}
	}()
	return l, nil
}

func (f *flowLab) download(host, at string, size int) (time.Duration, error) {
	var c net.Conn
	h := f.host(host)
	err := h.Do(func() (err error) { c, err = net.Dial("tcp", at); return err })
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begin, buffer, got := time.Now(), make([]byte, 1<<16), 0
	for got < size {
		n, err := c.Read(buffer)
		if got += n; err != nil {
			return 0, fmt.Errorf("%d of %d bytes: %w", got, size, err)
		}
	}
	return time.Since(begin), nil
}

// segments returns how many segments of TCP two hosts have sent, and how many the first one has repeated.
func (f *flowLab) segments(from, to string) (n [3]int) {
	f.Helper()
	read := func(host string) (out, again int) {
		lines := regexp.MustCompile(`(?m)^Tcp: .*\d$`).FindString(f.run(f.host(host), "cat /proc/net/snmp"))
		fields := strings.Fields(lines)
		out, _ = strconv.Atoi(fields[11])
		again, _ = strconv.Atoi(fields[12])
		return out, again
	}
	n[0], n[2] = read(from)
	n[1], _ = read(to)
	return n
}

// idleTime is how long the processor had nothing to do since the start of the machine.
func idleTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}
