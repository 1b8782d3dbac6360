package lab_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"sluice/test/lab"
)

var loopbackManifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.1
  ports: [{port: 80, nodePort: 30080}]
` + lab.EndpointSlice("IPv4", "web", "", "pod1")

// Node ports on loopback addresses can be enabled and disabled while the proxy
// runs. Established connections stay.
func TestLoopbackFollowsConfiguration(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	dir, etc := t.TempDir(), t.TempDir()
	write(t, dir, "web.yaml", loopbackManifests, 0)
	write(t, etc, "config.yaml", liveConfig, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{"--config", filepath.Join(etc, "config.yaml")}})
	settle(t, p, dir, 0)
	flow := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:30080")}
	ends := func(kind lab.Kind) {
		t.Helper()
		eventually(t, func() bool { return l.Connect(t.Context(), flow).Kind == kind })
	}
	ends(lab.Refused)
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, localhost]\n", 0)
	ends(lab.Answered)
	session, err := l.Open(flow)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Ask(); err != nil {
		t.Fatal(err)
	}
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, localhost]\nfeatureGates: {KubeProxyNFTablesLocalhostNodePorts: false}\n", 0)
	ends(lab.Refused)
	if answer, err := session.Ask(); err != nil || answer.By != "pod1" {
		t.Errorf("the connection that stood: %v, answered by %q", err, answer.By)
	}
	write(t, etc, "config.yaml", liveConfig+"nodePortAddresses: [primary, 127.0.0.1/32]\n", 0)
	ends(lab.Answered)
}
