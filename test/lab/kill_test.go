//go:build linux

package lab_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// A proxy that is killed at any time, also while programming, affects no existing
// connection, and the next one finishes its work.
func TestProxyMayBeKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	inEachMode(t, testKill)
}

func testKill(t *testing.T, mode string) {
	t.Logf("seed %d (repeat with -seed)", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	start := func() *lab.Proxy { return startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir}) }
	p := start()
	settle(t, p, dir, 0)
	good, other := netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.96.1.99:80")
	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: good}
	traffic, err := l.StartTraffic(t.Context(), []lab.Flow{flow}, lab.TrafficOptions{Sessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		// The others are added and removed in turn.
		content := ""
		if i%2 == 0 {
			content = manyServices()
		}
		write(t, dir, "many.yaml", content, 0)
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		p = start()
	}
	write(t, dir, "many.yaml", manyServices(), 0)
	eventually(t, func() bool {
		return l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: other, Timeout: lab.ShortTimeout}).Kind == lab.Answered
	})
	answered(t, l, good)
	// In userspace mode connections go through the process.
	if count := traffic.Stop(); count.Lost() > 0 && !scenario.Modes[mode].InProcess {
		t.Errorf("connections were lost: %v", count)
	}
}

// Processes that are killed one after the other while they write all rules anew, because those of before
// are gone, leave nothing that is in the way of the next one.
func TestProxyMayBeKilledWhileItBuilds(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		t.Logf("seed %d (repeat with -seed)", *seed)
		rng := rand.New(rand.NewPCG(*seed, 1))
		l := lab.Start(t)
		node, err := l.Host("node1")
		if err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) string {
			t.Helper()
			out, err := node.Run(t.Context(), lab.Command{Args: args})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		dir := t.TempDir()
		write(t, dir, "many.yaml", manyServices(), 0)
		start := func() *lab.Proxy { return startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir}) }
		p := start()
		settle(t, p, dir, 0)
		tables := func() int { return strings.Count(run("nft", "list", "tables"), "\n") }
		before := tables()
		kills := testkit.Extent(5, 10, 30)
		for i := range kills {
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				run(scenario.Modes[mode].Flush...)
			}
			p = start()
			time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		}
		settle(t, p, dir, 0)
		answered(t, l, netip.MustParseAddrPort("10.96.1.99:80"))
		testkit.Eventually(t, func() error {
			if now := tables(); now != before {
				return fmt.Errorf("there are %d tables, want %d as before:\n%s", now, before, run("nft", "list", "tables"))
			}
			return nil
		})
	})
}
