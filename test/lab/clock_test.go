//go:build linux

package lab_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// The time of day may jump, and far: connections and clients with affinity stay where they are,
// changes are in force as soon as before, and the proxy says nothing about times that cannot be.
func TestClockJumps(t *testing.T) {
	if !testkit.InGuest() {
		t.Skip("test/vm runs it: it sets the clock of the machine")
	}
	for _, mode := range scenario.ModesFor(t.Name()) { // one after the other: there is one clock
		t.Run(mode, func(t *testing.T) {
			requireSupport(t, mode)
			testClockJumps(t, mode)
		})
	}
}

// negative is a time that has not passed yet.
var negative = regexp.MustCompile(`(?:^|[\s(])-\d+(?:\.\d+)?(?:ms|s|m|h|d)\b`)

func testClockJumps(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	sticky := strings.NewReplacer("name: good", "name: sticky", "10.96.0.1", "10.96.0.2", "spec:\n", "spec:\n  sessionAffinity: ClientIP\n").Replace(goodManifests)
	service, _, _ := strings.Cut(sticky, "---")
	write(t, dir, "sticky.yaml", service+lab.EndpointSlice("IPv4", "sticky", "", "pod1", "pod2"), 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--cluster-cidr=10.244.0.0/16"}})
	settle(t, p, dir, 0)
	a.ready()
	to := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}
	toSticky := lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.2:80")}
	held, err := l.Open(toSticky)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	first, err := held.Ask()
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	began, stopwatch := time.Now().Round(0), time.Now()
	set := func(offset time.Duration) error {
		now := unix.NsecToTimespec(began.Add(time.Since(stopwatch) + offset).UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	}
	defer func() {
		if err := set(0); err != nil {
			t.Error(err)
		}
	}()
	for i, jump := range []time.Duration{day, -day, 3000 * day, -3000 * day, 0} {
		if err := set(jump); err != nil {
			t.Fatal(err)
		}
		pod := []string{"pod2", "pod1"}[i%2]
		write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", hostAddr(t, l, pod).String()), 0)
		eventually(t, func() bool { return l.Connect(t.Context(), to).By == pod })
		if answer, err := held.Ask(); err != nil || answer.By != first.By {
			t.Errorf("%v from now a held connection gets %v, %v", jump, answer, err)
		}
		for range 4 {
			if o := l.Connect(t.Context(), toSticky); o.By != first.By {
				t.Errorf("%v from now a client of %s gets %v", jump, first.By, o)
			}
		}
		if page := ask(t, l, "node1", healthServer, "/healthz"); page.Status != 200 {
			t.Errorf("%v from now /healthz says\n%s", jump, page.Text)
		}
		for _, question := range []string{"status", "services", "events"} {
			if out, errs, code := a.ask(question); code != 0 || negative.MatchString(out) {
				t.Errorf("%v from now %s ends with %d:\n%s%s", jump, question, code, out, errs)
			}
		}
	}
}
