//go:build linux

package lab_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"sluice/internal/answer/listing"
	"sluice/internal/observe/history"
	"sluice/test/lab"
)

// What happens to a Service and to its clients is in the answers of events and services.
func TestEventsAndServices(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	m := meter{t, l}
	a, socket := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "counted.yaml", countedManifests, 0)
	p := startProxy(t, l, "nftables", lab.ProxyOptions{Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16", socket}})
	settle(t, p, dir, 0)

	says := func(args []string, code int, want ...string) {
		t.Helper()
		var out string
		eventually(t, func() bool {
			var got int
			out, _, got = a.ask(args...)
			if got != code {
				return false
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					return false
				}
			}
			return true
		})
		t.Logf("%v\n%s", args, out)
	}
	says([]string{"events"}, 0, "this node", "all Services programmed: 4 Services, 6 frontends")
	m.connect(3, "pod3", "10.96.0.11:80", lab.Refused)
	says([]string{"events", "-n", "default"}, 0, "default/empty ", "refused 3 packets in ", ": the Service has no endpoint that can be used")
	says([]string{"services", "--failing"}, 1, "default    empty  REFUSED  0          0      10.96.0.11:80/TCP  no EndpointSlice\n", "1 of 4 Services\n")
	says([]string{"services", "-o", "yaml"}, 0, "verdict: works-for-some\n", "name: elsewhere\n")

	mark := p.Log().Len()
	write(t, dir, "filled.yaml", filledManifests, 0)
	settle(t, p, dir, mark)
	says([]string{"events", "default/empty"}, 0, "endpoint 10.244.1.2:8080 added (in the kernel after ")
	says([]string{"services", "--failing"}, 0)

	out, _, code := a.ask("events", "default/empty", "-o", "json")
	var reply struct{ Events []history.Event }
	if err := json.Unmarshal([]byte(out), &reply); err != nil || code != 0 || len(reply.Events) != 2 || reply.Events[1].Kind != history.EndpointAdded {
		t.Errorf("%v, exit code %d\n%s", err, code, out)
	}

	// While clients connect, their Service is on top.
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				m.l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.10:80")})
			}
		}
	}()
	out, _, _ = a.ask("services", "--top", "--interval", "1s", "--json")
	close(done)
	<-stopped
	var list listing.List
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Services) != 4 || list.Services[0].Name != "web" || list.Services[0].Connections < 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
