//go:build linux

package windows

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/testkit"
	"sluice/test/windows/wine"
)

// sandboxPort is a node port of TCP and UDP.
const sandboxPort = "30070"

// sandbox starts a proxy with --sandbox, which serves a node port in both families.
func (n *node) sandbox() {
	n.Helper()
	manifest := `apiVersion: v1
kind: Service
metadata: {name: echo, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.70
  clusterIPs: [10.96.0.70, "fd96::70"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: tcp, port: 7, nodePort: ` + sandboxPort + `}, {name: udp, protocol: UDP, port: 7, nodePort: ` + sandboxPort + `}]
`
	for i, family := range []string{"IPv4", "IPv6"} {
		tcp, udp := n.echo(wine.NodeIPs[i])
		manifest += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-%s, namespace: default, labels: {kubernetes.io/service-name: echo}}
addressType: %s
ports: [{name: tcp, port: %d}, {name: udp, protocol: UDP, port: %d}]
endpoints: [{addresses: ["%s"], nodeName: node1, conditions: {ready: true}}]
`, strings.ToLower(family), family, tcp, udp, wine.NodeIPs[i])
	}
	dir := n.Path(n.Label + "-sandbox")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "echo.yaml"), []byte(manifest), 0o644)
	}
	if err != nil {
		n.Fatal(err)
	}
	n.Run(n.exe, "--sandbox", "--manifests="+wine.Native(dir), "--hostname-override=node1", "--page=false", "--control-socket=",
		"--healthz-bind-address="+n.FreeAddress(), "--metrics-bind-address="+n.FreeAddress())
	for _, ip := range wine.NodeIPs {
		for _, network := range []string{"tcp", "udp"} {
			testkit.Eventually(n, func() error { return n.ask(network, net.JoinHostPort(ip, sandboxPort)) })
		}
	}
}

// echo serves an address of the node, and returns the ports of TCP and UDP.
func (n *node) echo(ip string) (tcp, udp int) {
	n.Helper()
	listener := n.Listen(net.JoinHostPort(ip, "0"))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	var packets net.PacketConn
	if err := n.Do(func() (err error) {
		packets, err = net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
		return err
	}); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { packets.Close() })
	go func() {
		for buffer := make([]byte, 64); ; {
			size, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return // it was closed
			}
			_, _ = packets.WriteTo(buffer[:size], from)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, packets.LocalAddr().(*net.UDPAddr).Port
}

// ask returns nil if what is sent to an address comes back.
func (n *node) ask(network, address string) error {
	var conn net.Conn
	if err := n.Do(func() (err error) {
		conn, err = net.Dial(network, address)
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(testkit.Deadline(time.Second)) // reading fails if it does
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	size, err := conn.Read(answer)
	if err == nil && string(answer[:size]) != "hello" {
		err = fmt.Errorf("%s %s answers %q", network, address, answer[:size])
	}
	return err
}
