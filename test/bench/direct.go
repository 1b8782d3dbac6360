//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/test/lab"
)

const (
	directRounds = 11
	directTime   = time.Second // of one round
	// directRatio is how much more should be downloaded with direct return, in packets of 1500 bytes. On a machine with
	// other load, waiting hides it.
	directRatio = 1.3
	directPort  = 8082
)

// The addresses of two Services with the same endpoint, on another node than the one that clients ask: one with
// direct return.
var directAddr, plainAddr = netip.MustParseAddrPort("198.18.0.10:80"), netip.MustParseAddrPort("198.18.0.20:80")

const directObjects = `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, annotations: {%[3]s}}
spec:
  type: LoadBalancer
  clusterIP: %[4]s
  ports: [{port: 80, targetPort: 8082}]
status: {loadBalancer: {ingress: [{ip: %[2]s, ipMode: VIP}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8082}]
endpoints: [{addresses: [10.244.2.1], nodeName: n2}]
`

// reportDirect measures downloads of a client outside and new connections, with direct return and without it. Rounds
// alternate.
func reportDirect(ctx context.Context) error {
	if err := lab.Sweep(); err != nil {
		return err
	}
	l, err := lab.NewQuartet()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := serveDirect(ctx, l); err != nil {
		return err
	}
	var rates, opened [2][]float64 // direct and plain
	for range directRounds {
		for i, to := range []netip.AddrPort{directAddr, plainAddr} {
			rate, err := pull(ctx, l, to)
			if err != nil {
				return fmt.Errorf("download from %v: %w", to, err)
			}
			rates[i] = append(rates[i], rate)
			n, err := openMany(ctx, l, to)
			if err != nil {
				return fmt.Errorf("connections to %v: %w", to, err)
			}
			opened[i] = append(opened[i], n)
		}
	}
	fmt.Printf("\nA client outside and an endpoint on another node than the one it asks (medians of %d rounds)\n\n", directRounds)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "\tdirect return\tordinary\tratio\tat least")
	fmt.Fprintf(out, "megabytes per second, in packets of 1500 bytes\t%.0f\t%.0f\t%.2f\t%.1f\n", median(rates[0]), median(rates[1]),
		ratio(rates[0], rates[1]), directRatio)
	fmt.Fprintf(out, "new connections per second, one at a time\t%.0f\t%.0f\t%.2f\t\n", median(opened[0]), median(opened[1]), ratio(opened[0], opened[1]))
	if err := out.Flush(); err != nil {
		return err
	}
	return reportDirectSizes()
}

// serveDirect starts the proxies and the endpoint, and waits until packets are handed on.
func serveDirect(ctx context.Context, l *lab.Lab) error {
	dir, err := l.TempDir()
	if err != nil {
		return err
	}
	var objects strings.Builder
	for i, n := range lab.Nodes {
		fmt.Fprintf(&objects, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1%d}]}\n", n, i+1)
	}
	fmt.Fprintf(&objects, directObjects, "direct", directAddr.Addr(), `"sluice/forwarding": "direct"`, "10.96.0.1")
	fmt.Fprintf(&objects, directObjects, "plain", plainAddr.Addr(), "", "10.96.0.2")
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(objects.String()), 0o644); err != nil {
		return err
	}
	for _, n := range lab.Nodes {
		if _, err := l.StartProxy(lab.ProxyOptions{Node: n, Manifests: dir, Flags: []string{"--proxy-mode", "nftables", "--direct-return=auto"}}); err != nil {
			return err
		}
	}
	pod, err := l.Host("p2")
	if err != nil {
		return err
	}
	// One packet at a time, as on a real wire.
	if _, err := pod.Run(ctx, lab.Command{Args: []string{"ip", "link", "set", "eth0", "gso_max_segs", "1"}}); err != nil {
		return err
	}
	var listener net.Listener
	if err := pod.Do(func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", directPort))
		return err
	}); err != nil {
		return err
	}
	sources := make(chan netip.Addr, 1<<16)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case sources <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr():
			default:
			}
			go func() {
				defer c.Close()
				for chunk := make([]byte, 64<<10); ; {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	client, err := l.Host("client")
	if err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		c, err := dialOutside(ctx, l, directAddr)
		if err == nil {
			c.Close()
			if <-sources == client.Addrs[0] {
				return nil
			}
		}
		if time.Since(begin) > time.Minute {
			return errors.Join(errors.New("packets are not handed on"), err)
		}
	}
}

func dialOutside(ctx context.Context, l *lab.Lab, to netip.AddrPort) (c net.Conn, err error) {
	client, err := l.Host("client")
	if err != nil {
		return nil, err
	}
	err = client.Do(func() error {
		d := net.Dialer{Timeout: 2 * time.Second}
		c, err = d.DialContext(ctx, "tcp4", to.String())
		return err
	})
	return c, err
}

// pull returns how many megabytes per second come.
func pull(ctx context.Context, l *lab.Lab, from netip.AddrPort) (float64, error) {
	c, err := dialOutside(ctx, l, from)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begin := time.Now()
	if err := c.SetReadDeadline(begin.Add(directTime)); err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return float64(n) / 1e6 / time.Since(begin).Seconds(), err
}

// openMany returns how many connections per second can be opened.
func openMany(ctx context.Context, l *lab.Lab, to netip.AddrPort) (float64, error) {
	begin, n := time.Now(), 0
	for ; time.Since(begin) < directTime/5; n++ {
		c, err := dialOutside(ctx, l, to)
		if err != nil {
			return 0, err
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
