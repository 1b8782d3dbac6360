//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// A tenth of 1,000 endpoints comes and goes all the time: at most ten commits a second, and the proxy does not
// grow. All of them are one pod, which answers at 250 more addresses; so a connection that is led from one to another
// may meet itself there, and it is not looked at how they end.
func TestManyFlappingEndpoints(t *testing.T) {
	testkit.OnlyFull(t, "it waits, and the ejector's own test shows the same with a clock of its own")
	t.Parallel()
	inModesThatNotice(t, func(t *testing.T, mode string) {
		l := lab.Start(t)
		on(t, l, "node1", "ip", "route", "add", "10.250.0.0/24", "via", "10.244.1.1")
		on(t, l, "pod1", "nft", "add table ip many; add set ip many dark { type ipv4_addr; };"+
			"add chain ip many pre { type nat hook prerouting priority -100; }; add rule ip many pre ip daddr 10.250.0.0/24 meta l4proto tcp redirect to :8080;"+
			"add chain ip many raw { type filter hook prerouting priority -300; }; add rule ip many raw ip daddr @dark drop")
		text := plainService("many", "10.96.0.1", "TCP", `sluice/eject: "true"`)
		for port := 8001; port <= 8004; port++ {
			text += fmt.Sprintf("\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: many-%d, namespace: default, labels: {kubernetes.io/service-name: many}}\n"+
				"addressType: IPv4\nports: [{port: %d}]\nendpoints:\n", port, port)
			for n := 1; n <= 250; n++ {
				text += fmt.Sprintf("- {addresses: [10.250.0.%d], conditions: {ready: true}}\n", n)
			}
		}
		dir := t.TempDir()
		write(t, dir, "many.yaml", text, 0)
		a, socket := newAsker(t, l)
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{socket}})
		settle(t, p, dir, 0)
		a.ready()
		var flows []lab.Flow
		for _, from := range []string{"pod2", "pod3", "node1"} {
			flows = append(flows, lab.Flow{From: from, Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80"), Timeout: 20 * time.Second})
		}
		s := newStream(t, l, 200, flows...)
		var flapping []string // 25 of 250 addresses
		for n := 1; n <= 250; n += 10 {
			flapping = append(flapping, fmt.Sprintf("10.250.0.%d", n))
		}
		most := 0
		flap := func(d time.Duration) {
			for i, end := 0, time.Now().Add(d); time.Now().Before(end); i++ {
				verb := [2]string{"add", "delete"}[i%2]
				on(t, l, "pod1", "nft", verb+" element ip many dark { "+strings.Join(flapping, ", ")+" }")
				time.Sleep(3 * time.Second)
				most = max(most, ejected(t, a))
			}
		}
		flap(12 * time.Second)
		commits, began, size := commitsOf(t, l), time.Now(), resident(t, p.PID())
		flap(time.Minute)
		perSecond := float64(commitsOf(t, l)-commits) / time.Since(began).Seconds()
		after := resident(t, p.PID())
		s.end()
		t.Logf("%.1f commits per second, %d MiB and then %d MiB, at most %d ejected", perSecond, size>>20, after>>20, most)
		if perSecond > 10 {
			t.Errorf("%.1f commits per second", perSecond)
		}
		if after > size+size/4 {
			t.Errorf("the proxy grew from %d to %d bytes", size, after)
		}
		if most == 0 {
			t.Error("none was ejected: the test shows less than it should")
		}
	})
}

var commitCount = regexp.MustCompile(`\nsluice_commits_total\{kind="apply"\} (\d+)`)

// commitsOf returns how many changes the proxy has written.
func commitsOf(t *testing.T, l *lab.Lab) int {
	t.Helper()
	found := commitCount.FindStringSubmatch(metricsPage(l, "/metrics"))
	if found == nil {
		t.Fatal("the commits are not counted")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// resident returns the memory of a process, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
