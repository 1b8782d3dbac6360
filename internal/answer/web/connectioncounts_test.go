package web

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestConnectionsOfEndpointsAreShown(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	counts, fail := 0, error(nil)
	w := newWorld(t, func(o *Options) {
		o.Clock = clock
		o.Count = func(context.Context) (map[netip.AddrPort]Connections, error) {
			counts++
			return map[netip.AddrPort]Connections{netip.MustParseAddrPort("10.244.1.1:8080"): {Open: 1234, Unanswered: 3}}, fail
		}
	})
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"})...)
	const link = "/service?namespace=default&name=web"
	body := w.get(link).Body.String()
	wants(t, body, "Open connections", `data-label="open">`+count(1234)+`</td><td class="number alarm" data-label="unanswered">3</td>`,
		`data-label="open">0</td><td class="number" data-label="unanswered">0</td>`)
	w.get(link)
	w.get("/")
	if counts != 1 {
		t.Errorf("counted %d times within a moment", counts)
	}
	clock.Step(minInterval + time.Second)
	fail = errors.New("no permission")
	if body := w.get(link).Body.String(); strings.Contains(body, "Open connections") || counts != 2 {
		t.Errorf("after %d counts, old connections are shown:\n%s", counts, body)
	}
}
