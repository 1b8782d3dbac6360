//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// The page of a Service shows how many connections each endpoint has, in every mode in
// which the kernel forwards them.
func TestConnectionsPerEndpoint(t *testing.T) {
	t.Parallel()
	inEachMode(t, testConnectionsPerEndpoint)
}

// openConnections finds the number in the row of the endpoint.
var openConnections = regexp.MustCompile(`(?s)<code>10\.244\.1\.1:8080</code>.*?data-label="open">(\d+)<`)

func testConnectionsPerEndpoint(t *testing.T, mode string) {
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir})
	settle(t, p, dir, 0)
	for range 3 {
		session, err := l.Open(lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if _, err := session.Ask(); err != nil {
			t.Fatal(err)
		}
	}
	want := "3"
	if mode == "userspace" {
		want = "" // the proxy's own connections are not those of clients
	}
	page := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: lab.DefaultTimeout}
	testkit.Eventually(t, func() error {
		answer, err := l.Get(page, "/service?namespace=default&name=good")
		if err != nil || answer.Status != 200 {
			return fmt.Errorf("no page: %v, status %d", err, answer.Status)
		}
		got := ""
		if found := openConnections.FindStringSubmatch(answer.Text); found != nil {
			got = found[1]
		}
		if got != want {
			return fmt.Errorf("the page shows %q open connections, want %q\n%s", got, want, answer.Text)
		}
		return nil
	})
}
