//go:build linux

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// Where file descriptors run out, new connections of the client that has most of them are
// refused and the reason is told. Those that exist go on, and other clients are served.
func TestUserspaceFileDescriptors(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	n.startAs(withFiles(t, 400))
	const limit, share = (400 - 128) / 4, (400 - 128) / 4 * 3 / 4
	flow := lab.Flow{From: "client", Protocol: lab.TCP, To: web}
	var held []*lab.Session
	defer func() {
		for _, s := range held {
			s.Close()
		}
	}()
	for range share {
		s, err := n.Open(flow)
		if err == nil {
			_, err = s.Ask()
		}
		if err != nil {
			t.Fatalf("connection %d: %v", len(held)+1, err)
		}
		held = append(held, s)
	}
	if o := n.Connect(t.Context(), flow); o.Kind == lab.Answered {
		t.Errorf("%v, though the client has as many connections as it can", o)
	}
	eventually(t, func() bool {
		log := n.proxy.Log().String()
		return strings.Contains(log, "as many as file descriptors allow") && strings.Contains(log, fmt.Sprint("client ", hostAddr(t, n.Lab, "client"))) && strings.Contains(log, "LimitNOFILE")
	})
	if got := n.metric(`sluice_userspace_refused_connections_total{protocol="TCP",reason="file-descriptors"}`); got != 1 {
		t.Errorf("%d refusals are counted, want 1", got)
	}
	if out, _, _ := n.asker.ask("status"); !strings.Contains(out, fmt.Sprintf("%d connections through this process, at most %d", share, limit)) {
		t.Errorf("status does not tell of the connections:\n%s", out)
	}
	if out, _, _ := n.asker.ask("explain", web.String()); !strings.Contains(out, fmt.Sprintf("forwards %d connections now: %v has %d", share, netip.AddrPortFrom(hostAddr(t, n.Lab, "pod1"), 8080), share)) {
		t.Errorf("explain does not tell of the connections:\n%s", out)
	}
	for i, s := range held {
		if _, err := s.Ask(); err != nil {
			t.Errorf("connection %d: %v", i+1, err)
		}
	}
	held[0].Close()
	held = held[1:]
	eventually(t, func() bool { return n.Connect(t.Context(), flow).Kind == lab.Answered })
}

// A client that opens very many flows of UDP, to several Services by several ways, takes the
// files of the proxy from nobody: it answers, follows its objects, and serves other clients.
func TestUserspaceFloodOfFlows(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	dns := func(i int, policy string) (string, []netip.AddrPort) {
		ip, port := netip.AddrFrom4([4]byte{10, 96, 0, byte(20 + i)}), uint16(30050+i)
		return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: dns%d, namespace: default}
spec:
  type: NodePort
  clusterIP: %v
  externalTrafficPolicy: %s
  ports: [{name: dns, protocol: UDP, port: 53, targetPort: 8080, nodePort: %d}]
`, i, ip, policy, port) + strings.Replace(lab.EndpointSlice("IPv4", fmt.Sprintf("dns%d", i), "dns", "pod1"), "port: 8080", "port: 8080, protocol: UDP", 1),
			[]netip.AddrPort{netip.AddrPortFrom(ip, 53), netip.AddrPortFrom(hostAddr(t, n.Lab, "node1"), port)}
	}
	a, toA := dns(0, "Cluster")
	b, toB := dns(1, "Local")
	write(t, n.dir, "dns.yaml", a+b, 0)
	const files = 400
	n.startAs(withFiles(t, files))
	before := openFiles(t, n.proxy)
	const connections = 45 // of 68
	for range connections {
		c, err := n.dial("client2", web)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	flood := func(from string, to ...netip.AddrPort) {
		t.Helper()
		err := n.host(from).Do(func() error {
			for i := range 3 * files {
				c, err := net.Dial("udp4", to[i%len(to)].String())
				if err != nil {
					return err
				}
				_, err = c.Write([]byte("who?\n"))
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = c.Read(make([]byte, 500)) // not faster than the proxy; it may refuse
				if err := errors.Join(err, c.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	flood("client", append(toA, toB...)...)
	flood("pod2", toA[0], toB[0])
	const left = files - 128 - 4*connections // data of connections would need two more each
	if flows := openFiles(t, n.proxy) - before - 2*connections; flows > left+10 {
		t.Errorf("flows have %d files, want %d or less", flows, left)
	}
	for _, flow := range []lab.Flow{{From: "pod3", Protocol: lab.TCP, To: web}, {From: "pod3", Protocol: lab.UDP, To: toA[0]}, {From: "remote1", Protocol: lab.UDP, To: toB[1]}} {
		if o := n.Connect(t.Context(), flow); o.Kind != lab.Answered {
			t.Errorf("%v: %v", flow, o)
		}
	}
	mark := n.proxy.Log().Len()
	write(t, n.dir, "dns.yaml", a, 0)
	settle(t, n.proxy, n.dir, mark)
	if page := ask(t, n.Lab, "node1", "127.0.0.1:10256", "/healthz"); page.Status != 200 {
		t.Errorf("/healthz is %d", page.Status)
	}
	if log := n.proxy.Log().String(); strings.Contains(log, "too many open files") {
		t.Errorf("the proxy ran out of files:\n%s", log)
	}
}

// Connections that are opened as fast as can be, and reset at once, hold up no other Service,
// not even if their endpoint does not answer.
func TestUserspaceFloodOfConnections(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	other := netip.MustParseAddrPort("10.96.0.11:80")
	service, _, _ := strings.Cut(dualManifests, "---")
	write(t, n.dir, "other.yaml", strings.NewReplacer("name: web", "name: other", web.Addr().String(), other.Addr().String(), "::10", "::11").Replace(service)+
		lab.EndpointSlice("IPv4", "other", "http", "pod2"), 0)
	n.run("pod1", "nft add table ip f; nft add chain ip f in '{ type filter hook input priority 0; }'; nft add rule ip f in tcp dport 8080 drop")
	n.startAs(withFiles(t, 1000))
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	var opened atomic.Int64
	client := onThreads(t, n.Lab, "client")
	for range 50 {
		flood.Go(func() {
			_ = client(func() error {
				for ctx.Err() == nil {
					c, err := net.DialTimeout("tcp4", web.String(), time.Second)
					if err != nil {
						continue
					}
					opened.Add(1)
					_, _ = c.Write([]byte("xx"))
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
				return nil
			})
		})
	}
	eventually(t, func() bool { return opened.Load() > 1000 })
	const tries = 100
	failed := 0
	for range tries {
		if o := n.Connect(t.Context(), lab.Flow{From: "client2", Protocol: lab.TCP, To: other, Timeout: testkit.Scaled(2 * time.Second)}); o.Kind != lab.Answered {
			failed++
			t.Logf("%v", o)
		}
	}
	t.Logf("%d of %d connections failed beside %d of a flood", failed, tries, opened.Load())
	if failed*100 > tries {
		t.Errorf("%d of %d connections to another Service failed", failed, tries)
	}
}

// Node ports of two nodes that are each other's endpoints pass a connection round for a while,
// and then end it. Other Services are served meanwhile.
func TestUserspaceRingOfNodePorts(t *testing.T) {
	t.Parallel()
	n := newUserspaceNode(t, "pod1")
	write(t, n.dir, "ring.yaml", `
apiVersion: v1
kind: Service
metadata: {name: ring, namespace: tenant}
spec:
  type: NodePort
  clusterIP: 10.96.0.7
  ports: [{port: 80, nodePort: 30080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ring-1, namespace: tenant, labels: {kubernetes.io/service-name: ring}}
addressType: IPv4
ports: [{port: 30080}]
endpoints: [{addresses: [192.0.2.10]}, {addresses: [192.0.2.20]}]
`, 0)
	n.start()
	other := startProxy(t, n.Lab, "userspace", lab.ProxyOptions{Node: "node2", Manifests: n.dir, Flags: []string{"--cluster-cidr=10.244.0.0/16,fd00:10:244::/48"}})
	settle(t, other, n.dir, 0)
	c, err := n.dial("client", netip.MustParseAddrPort("192.0.2.10:30080"))
	if err == nil { // else the reset came first
		defer c.Close()
		_ = c.SetReadDeadline(testkit.Deadline(testkit.Timeout))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client sees %v, want a reset", err)
	}
	if got := n.metric(`sluice_userspace_accepted_connections_total{protocol="TCP"}`); got < 20 || got > 64 {
		t.Errorf("node1 passed it on %d times, want about 30", got)
	}
	eventually(t, func() bool { return n.metric("sluice_userspace_connections") == 0 })
	answered(t, n.Lab, web)
	const told, service = "they go round in circles", "Service tenant/ring"
	if log := n.proxy.Log().String() + other.Log().String(); !strings.Contains(log, told) || !strings.Contains(log, service) {
		t.Errorf("no log has %q and %q", told, service)
	}
	const problem = "endpoint 192.0.2.10:30080/TCP is the node port of the Service itself"
	if out, _, _ := n.asker.ask("explain", "192.0.2.10:30080"); !strings.Contains(out, problem) {
		t.Errorf("explain does not say %q:\n%s", problem, out)
	}
}
