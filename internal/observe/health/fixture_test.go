package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/base/socketerror"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/internal/testkit"
)

var (
	web  = model.Name{Namespace: "default", Name: "web"}
	mail = model.Name{Namespace: "post", Name: "mail"}

	here   = testkit.Loopback(1)
	there  = testkit.Loopback(2)
	local6 = netip.IPv6Loopback()
)

// fixture is an engine as far as Services see it, and the Services.
type fixture struct {
	t        *testing.T
	services *Services
	healthy  func() bool
	log      testkit.Journal
	stop     func()

	mu      sync.Mutex
	desired plan.Desired
	looks   int // of Services at desired
}

// newFixture has Services that run until the test ends, or until stop. Prepare
// may change them before.
func newFixture(t *testing.T, prepare func(*fixture)) *fixture {
	t.Helper()
	w := &fixture{t: t, healthy: func() bool { return true }}
	w.services = NewServices(ServicesOptions{Logger: w.log.Logger()})
	if prepare != nil {
		prepare(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := w.services.Run(ctx, w, w.healthy); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.stop = func() { cancel(); run.Wait() }
	t.Cleanup(w.stop)
	return w
}

func (w *fixture) Inspect(read func(engine.View)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	read(engine.View{Desired: &w.desired})
}

// set makes other health checks on other addresses desired.
func (w *fixture) set(ips []netip.Addr, checks ...plan.HealthCheck) {
	byName := map[model.Name]plan.HealthCheck{}
	for _, check := range checks {
		byName[check.Service] = check
	}
	w.mu.Lock()
	change := &plan.Change{HealthChecks: true}
	if !slices.Equal(ips, w.desired.Settings.NodePortIPs) {
		change = &plan.Change{Settings: &plan.Settings{NodePortIPs: ips}}
	}
	w.desired.HealthChecks, w.desired.Settings.NodePortIPs = byName, ips
	w.mu.Unlock()
	w.services.Committed(&engine.Commit{Change: change})
}

// configure changes the settings of the node.
func (w *fixture) configure(edit func(*plan.Settings)) {
	w.mu.Lock()
	edit(&w.desired.Settings)
	settings := w.desired.Settings
	w.mu.Unlock()
	w.services.Committed(&engine.Commit{Change: &plan.Change{Settings: &settings}})
}

// check is a health check with so many endpoints of IPv4 and IPv6.
func check(service model.Name, port uint16, four, six int) plan.HealthCheck {
	return plan.HealthCheck{Service: service, Port: port, LocalEndpoints: four + six, LocalIPv6: six, IPv4: true, IPv6: true}
}

// reply is the gist of what a server said; "refused" is no status of HTTP.
type reply struct {
	status  string
	weight  string
	service model.Name
}

var refused = reply{status: "refused"}

func ok(service model.Name, weight string) reply { return reply{"200 OK", weight, service} }
func none(service model.Name, weight string) reply {
	return reply{"503 Service Unavailable", weight, service}
}

// wantReply waits until an address answers as it should.
func (w *fixture) wantReply(ip netip.Addr, port uint16, want reply) {
	w.t.Helper()
	at := netip.AddrPortFrom(ip, port)
	testkit.Eventually(w.t, func() error {
		if got := ask(at); got != want {
			return fmt.Errorf("%v says %+v, want %+v", at, got, want)
		}
		return nil
	})
}

func ask(at netip.AddrPort) reply {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Scaled(testkit.Timeout)}
	response, err := client.Get("http://" + at.String() + "/any/path")
	if err != nil {
		if errors.Is(err, socketerror.ConnectionRefused) {
			return refused
		}
		return reply{status: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{status: err.Error()}
	}
	out := reply{status: response.Status, weight: response.Header.Get(weightHeader)}
	for _, name := range []model.Name{web, mail} {
		if strings.Contains(string(body), `"`+name.Name+`"`) {
			out.service = name
		}
	}
	return out
}

// freePorts finds ports that are free on ::1, the one address that others use
// as well. They stay clear of those that the kernel gives to clients.
func freePorts(t *testing.T, count int) []uint16 {
	t.Helper()
	var ports []uint16
	for tries := 0; len(ports) < count; tries++ {
		port := uint16(20000 + rand.IntN(10000))
		socket, err := net.Listen("tcp", netip.AddrPortFrom(local6, port).String())
		if err == nil {
			defer socket.Close()
			ports = append(ports, port)
		} else if tries > 100 {
			t.Fatal(err)
		}
	}
	return ports
}
