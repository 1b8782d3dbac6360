package lab_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

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
