//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/model"
	"sluice/internal/plan"
)

const tcpTimeWait = 7

func TestWhichConnectionsAreReset(t *testing.T) {
	drops := tcpFrontend("10.96.0.4:80")
	drops.Route.Empty = plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}
	local := split(tcpFrontend("198.18.0.1:80", "10.244.1.1:8080"), "10.244.1.1:8080")
	silent := split(tcpFrontend("198.18.0.2:80", "10.244.1.1:8080"))
	silent.Outside.Empty = plan.Refusal{Verdict: plan.Drop, Cause: plan.NoLocalEndpoints}
	x := node(tcpFrontend("10.96.0.1:80", "10.244.1.1:8080"), tcpFrontend("10.96.0.2:80"),
		tcpFrontend("0.0.0.0:30080", "10.244.1.1:8080"), drops, local, silent,
		draining(tcpFrontend("10.96.0.7:80", "10.244.1.1:8080"), "10.244.1.2:8080"))
	x.refuse(plan.Key{Addr: addr("10.96.0.5"), Port: 80, Protocol: model.TCP})
	x.set(tcpFrontend("10.96.0.6:80", "10.244.1.2:8080"))
	x.remove(plan.Key{Addr: addr("10.96.0.6"), Port: 80, Protocol: model.TCP})
	tests := []struct {
		name   string
		to, by string
		state  uint8
		want   bool
	}{
		{"endpoint is there", "10.96.0.1:80", "10.244.1.1:8080", ctnetlink.TCPEstablished, false},
		{"endpoint left", "10.96.0.1:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, true},
		{"endpoint left the pool but serves", "10.96.0.7:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
		{"endpoint left, unanswered", "10.96.0.1:80", "10.244.1.2:8080", ctnetlink.TCPSynSent, true},
		{"endpoint is there, unanswered", "10.96.0.1:80", "10.244.1.1:8080", ctnetlink.TCPSynSent, false},
		{"endpoint left the pool but serves, unanswered", "10.96.0.7:80", "10.244.1.2:8080", ctnetlink.TCPSynSent, true},
		{"last endpoint left, unanswered", "10.96.0.4:80", "10.244.1.2:8080", ctnetlink.TCPSynSent, true},
		{"endpoint of policy Local for some, unanswered", "198.18.0.2:80", "10.244.1.1:8080", ctnetlink.TCPSynSent, false},
		{"not translated, unanswered", "10.96.0.1:80", "10.96.0.1:80", ctnetlink.TCPSynSent, false},
		{"frontend that was refused, unanswered", "10.96.0.5:80", "10.244.1.2:8080", ctnetlink.TCPSynSent, false},
		{"endpoint left, half closed", "10.96.0.1:80", "10.244.1.2:8080", ctnetlink.TCPLastAck, true},
		{"endpoint left, over", "10.96.0.1:80", "10.244.1.2:8080", tcpTimeWait, false},
		{"not translated", "10.96.0.1:80", "10.96.0.1:80", ctnetlink.TCPEstablished, false},
		{"last endpoint left", "10.96.0.2:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, true},
		{"last endpoint left, and there would be silence", "10.96.0.4:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
		{"endpoint of a node port left", "192.0.2.10:30080", "10.244.1.2:8080", ctnetlink.TCPEstablished, true},
		{"endpoint of policy Local left", "198.18.0.1:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, true},
		{"last endpoint of policy Local left", "198.18.0.2:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
		{"frontend that was refused", "10.96.0.5:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
		{"frontend that is gone", "10.96.0.6:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
		{"foreign", "203.0.113.1:80", "10.244.1.2:8080", ctnetlink.TCPEstablished, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := flowOf(model.TCP, tt.to, tt.by)
			f.State = tt.state
			if got := x.stale(f); got != tt.want {
				t.Errorf("reset: %v", got)
			}
		})
	}
}

// What follows a commit depends on what it can have done to a connection.
func TestTCPIsSweptWhenAnEndpointLeft(t *testing.T) {
	const web = "10.96.0.1:80"
	tests := []struct {
		name   string
		change *plan.Change
		want   []kinds // if connections are to be reset
		also   []kinds // if they are not
	}{
		{"one more endpoint", &plan.Change{Set: []*plan.Frontend{tcpFrontend(web, old, now)}}, nil, nil},
		{"another frontend", &plan.Change{Set: []*plan.Frontend{tcpFrontend("10.96.0.2:80", old)}}, nil, nil},
		{"removed frontend", &plan.Change{Removed: []plan.Key{tcpFrontend(web).Key}}, nil, nil},
		{"node port addresses", &plan.Change{Settings: &plan.Settings{NodePortIPs: []netip.Addr{addr("192.0.2.1")}}}, []kinds{{allUDP}}, []kinds{{allUDP}}},
		{"endpoint terminates in good order", &plan.Change{Set: []*plan.Frontend{draining(tcpFrontend(web, now), old)}}, []kinds{{unansweredTCP}}, []kinds{{unansweredTCP}}},
		{"endpoint for some", &plan.Change{Set: []*plan.Frontend{split(tcpFrontend(web, now), old)}}, nil, nil},
		{"endpoint serves no longer, without a change of the rules", &plan.Change{Serving: []*plan.Frontend{tcpFrontend(web, now)}}, []kinds{{allTCP}}, []kinds{{unansweredTCP}}},
		{"replaced endpoint", &plan.Change{Set: []*plan.Frontend{tcpFrontend(web, now)}}, []kinds{{allTCP}}, []kinds{{unansweredTCP}}},
		{"last endpoint", &plan.Change{Set: []*plan.Frontend{tcpFrontend(web)}}, []kinds{{allTCP}}, []kinds{{unansweredTCP}}},
		{"of UDP too", &plan.Change{Set: []*plan.Frontend{tcpFrontend(web), frontend(web, now)}}, []kinds{{allUDP, allTCP}}, []kinds{{allUDP, unansweredTCP}}},
	}
	for _, tt := range tests {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, reset), func(t *testing.T) {
				inBubbleWith(t, Options{ResetTCP: reset}, func(t *testing.T, b *fixture) {
					b.reconcile(&plan.Change{Set: []*plan.Frontend{tcpFrontend(web, old)}})
					elapse(time.Minute)
					b.table.swept = nil
					b.apply(tt.change)
					elapse(time.Minute)
					for _, p := range b.table.swept {
						slices.Sort(p)
					}
					want := tt.also
					if reset {
						want = tt.want
					}
					if diff := cmp.Diff(want, b.table.swept); diff != "" {
						t.Errorf("looked at (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

func TestNoResetWithoutTCPLoose(t *testing.T) {
	inBubbleWith(t, Options{ResetTCP: true}, func(t *testing.T, b *fixture) {
		b.table.strict = true
		b.table.entries = []*flow{flowOf(model.TCP, web, old), flowOf(model.UDP, web, old)}
		b.set(tcpFrontend(web, old), frontend(web, old))
		elapse(time.Minute)
		for range 3 {
			b.reconcile(&plan.Change{Set: []*plan.Frontend{tcpFrontend(web, now), frontend(web, now)}})
			elapse(time.Minute)
		}
		b.wantAnsweredBy(old)
		if len(b.logged) != 1 || !strings.Contains(b.logged[0], remedyLoose) {
			t.Errorf("logged %q, want one complaint", b.logged)
		}
		b.table.strict = false
		b.set(tcpFrontend(web, old), frontend(web, now))
		elapse(time.Minute)
		b.set(tcpFrontend(web, now), frontend(web, now))
		elapse(time.Minute)
		b.wantAnsweredBy()
	})
}

func TestOnlyLostConnectionsAreReset(t *testing.T) {
	cut := []entry{
		{name: "endpoint left", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "endpoint of a node port left", to: "192.0.2.10:30080", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "IPv6", to: "[fd00:96::1]:80", by: "[fd00:244::3]:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "waiting for the end", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPLastAck},
	}
	kept := []entry{
		{name: "endpoint is there", to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "over", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: tcpTimeWait},
		{name: "another port", to: "10.96.0.1:81", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "another protocol", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.UDP},
	}
	moved := []entry{
		{name: "unanswered", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
		{name: "unanswered, IPv6", to: "[fd00:96::1]:80", by: "[fd00:244::3]:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent},
	}
	kept = append(kept, entry{name: "unanswered, endpoint is there", to: "10.96.0.1:80", by: "10.244.1.1:8080", protocol: model.TCP, state: ctnetlink.TCPSynSent})
	for _, reset := range []bool{true, false} {
		n := newNamespace(t)
		n.create(slices.Concat(cut, kept, moved)...)
		r := n.reconciler(Options{ResetTCP: reset})
		commit(t, r, &plan.Change{
			Settings: &plan.Settings{NodePortIPs: []netip.Addr{addr("192.0.2.10")}},
			Set: []*plan.Frontend{
				frontend("10.96.0.9:53"), // so that there is a pass in any case
				tcpFrontend("10.96.0.1:80", "10.244.1.1:8080"),
				tcpFrontend("0.0.0.0:30080", "10.244.1.1:8080"),
				tcpFrontend("[fd00:96::1]:80", "[fd00:244::1]:8080"),
			},
		})
		left := kept
		if !reset {
			left = append(left, cut...)
		}
		var want []string
		for _, e := range left {
			want = append(want, e.seen())
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, n.entries()); diff != "" {
			t.Errorf("with resets %v, entries left (-want +got):\n%s", reset, diff)
		}
	}
}

// Where the kernel remembers connections elsewhere too, it forgets them there before their
// entries are deleted, all of a family at once.
func TestConnectionsAreForgottenFirst(t *testing.T) {
	n := newNamespace(t)
	entries := []entry{
		{name: "one", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "another", to: "10.96.0.1:80", by: "10.244.1.3:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "another endpoint", to: "10.96.0.1:80", by: "10.244.1.4:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
		{name: "IPv6", to: "[fd00:96::1]:80", by: "[fd00:244::3]:8080", protocol: model.TCP, state: ctnetlink.TCPEstablished},
	}
	n.create(entries...)
	var calls [][]dataplane.Lost
	refuse := true
	forgetting := table{netns: n.FD(), forget: func(_ context.Context, lost []dataplane.Lost) error {
		if got := len(n.entries()); got != len(entries) && !refuse && len(calls) == 0 {
			t.Errorf("%d entries are left before they are forgotten", got)
		}
		slices.SortFunc(lost, func(a, b dataplane.Lost) int { return a.Endpoint.Compare(b.Endpoint) })
		calls = append(calls, lost)
		if refuse {
			return errors.New("not now")
		}
		return nil
	}}
	sweep := func() (int, error) {
		result, err := forgetting.sweep(t.Context(), kinds{allTCP}, func(*flow) bool { return true })
		return result.deleted, err
	}
	if deleted, err := sweep(); err == nil || deleted != 0 || len(n.entries()) != len(entries) {
		t.Errorf("%d of %d entries deleted although they were not forgotten, %v", deleted, len(entries), err)
	}
	calls, refuse = nil, false
	if deleted, err := sweep(); err != nil || deleted != len(entries) {
		t.Errorf("%d of %d entries deleted, %v", deleted, len(entries), err)
	}
	web := func(at string) plan.Key { return plan.Key{Addr: addr(at), Port: 80, Protocol: model.TCP} }
	want := [][]dataplane.Lost{
		{{Frontend: web("10.96.0.1"), Endpoint: addrPort("10.244.1.3:8080")}, {Frontend: web("10.96.0.1"), Endpoint: addrPort("10.244.1.4:8080")}},
		{{Frontend: web("fd00:96::1"), Endpoint: addrPort("[fd00:244::3]:8080")}},
	}
	if diff := cmp.Diff(want, calls, cmp.Comparer(func(a, b dataplane.Lost) bool { return a == b })); diff != "" {
		t.Errorf("forgotten (-want +got):\n%s", diff)
	}
}

func TestOnlyEstablishedAreProvoked(t *testing.T) {
	f := flowOf(model.TCP, web, old)
	f.From, f.ReplyTo = addrPort("10.0.0.1:4000"), addrPort("192.0.2.10:5000")
	whole := connection{[2]netip.AddrPort{f.From, f.To}, [2]netip.AddrPort{f.By, f.ReplyTo}}
	for state, want := range map[uint8]connection{1: {}, 2: {}, ctnetlink.TCPEstablished: whole, ctnetlink.TCPLastAck: whole, tcpTimeWait: {}} {
		f.State = state
		if got := connectionOf(f); got != want {
			t.Errorf("state %d: %v, want %v", state, got, want)
		}
	}
}

func TestSynAckChecksums(t *testing.T) {
	tests := []struct {
		name     string
		from, to string
		header   int
	}{
		{"IPv4", "10.96.0.1:80", "10.244.1.3:40000", ipv4HeaderLen},
		{"IPv6", "[fd00:96::1]:80", "[fd00:244::3]:40000", ipv6HeaderLen},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, to := addrPort(tt.from), addrPort(tt.to)
			packet := appendSynAck(nil, from, to)
			if len(packet) != tt.header+tcpHeaderLen {
				t.Fatalf("%d bytes", len(packet))
			}
			src, dst, segment := from.Addr().AsSlice(), to.Addr().AsSlice(), packet[tt.header:]
			if !slices.Equal(packet[tt.header-2*len(src):tt.header], slices.Concat(src, dst)) {
				t.Errorf("addresses of % x", packet)
			}
			if sum := sumWords(uint32(6+len(segment)), src, dst, segment); sum != 0xffff {
				t.Errorf("the segment adds up to %x", sum)
			}
			if flags := segment[13]; flags != tcpFlagSYN|tcpFlagACK {
				t.Errorf("flags %x", flags)
			}
		})
	}
}
