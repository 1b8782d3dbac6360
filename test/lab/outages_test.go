//go:build linux

package lab_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// outages is a random history of a Service: pods go dark, refuse, and come back, the API takes endpoints away and
// adds them, and the proxy is killed. Of the four pods, at most two answer nobody at a time.
type outages struct {
	*failover
	rng *rand.Rand
	// bad are the pods that do not answer, by how that ends, and listed those that the API has.
	bad    map[string]func()
	listed []string
	log    []outage
}

// outage is what there is from a time on.
type outage struct {
	at       time.Time
	listed   []string
	refusing bool // some pod refuses
}

var outagePods = []string{"pod1", "pod2", "remote1", "remote2"}

// Whatever happens, no connection is lost while half of the endpoints answer, and none is led to an endpoint
// that the API does not list.
func TestRandomOutages(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d (repeat with -seed)", *seed)
	inModesThatNotice(t, func(t *testing.T, mode string) {
		f := newFailover(t, mode, `sluice/eject: "true"`, "")
		o := &outages{failover: f, rng: rand.New(rand.NewPCG(*seed, 31)), bad: map[string]func(){}}
		o.publish(outagePods)
		flow := webFlows(20 * time.Second)[0]
		fromNode := flow
		fromNode.From = "node1"
		s := newStream(t, f.lab, testkit.Extent(40, 40, 100), flow, fromNode)
		for end := time.Now().Add(testkit.Extent[time.Duration](6, 15, 180) * time.Second); time.Now().Before(end); {
			o.step()
			time.Sleep(time.Duration(300+o.rng.IntN(1500)) * time.Millisecond)
		}
		for _, undo := range o.bad {
			undo()
		}
		s.end()
		worst := time.Duration(0)
		calls := s.between(time.Time{}, time.Now())
		for _, c := range calls {
			worst = max(worst, c.took)
			if err := o.judge(c); err != nil {
				t.Errorf("a connection at %v: %v", c.at.Format(time.TimeOnly), err)
			}
		}
		t.Logf("%d connections, of which %d had to repeat a packet, the longest took %v, through %d changes", len(calls), repeated(calls), worst, len(o.log))
	})
}

// step lets something happen.
func (o *outages) step() {
	pod := outagePods[o.rng.IntN(len(outagePods))]
	switch n := o.rng.IntN(10); {
	case n == 0:
		o.restart()
	case n <= 2:
		without := slices.DeleteFunc(slices.Clone(outagePods), func(p string) bool { return p == pod })
		if len(o.listed) < len(outagePods) {
			without = outagePods
		}
		if 2*o.badAmong(without) <= len(without) {
			o.publish(without)
		}
	case o.bad[pod] != nil:
		o.bad[pod]()
		delete(o.bad, pod)
		o.note(o.listed)
	case len(o.bad) == 0 && ejected(o.T, o.a) == 0: // what is left out counts among those that do not answer
		o.fail(pod)
		if other := outagePods[o.rng.IntN(len(outagePods))]; o.bad[other] == nil && len(o.listed) == len(outagePods) {
			o.fail(other)
		}
	}
}

// restart kills the proxy and starts it again. Rules stay; where they lead to the proxy's own sockets, the
// kernel refuses meanwhile.
func (o *outages) restart() {
	before := o.log[len(o.log)-1].refusing
	o.note(o.listed)
	last := &o.log[len(o.log)-1]
	last.refusing = before || o.mode == "userspace"
	o.kill()
	o.log = append(o.log, outage{time.Now(), o.listed, before})
}

func (o *outages) badAmong(pods []string) (n int) {
	for _, pod := range pods {
		if o.bad[pod] != nil {
			n++
		}
	}
	return n
}

// fail has a pod drop or refuse new connections.
func (o *outages) fail(pod string) {
	rule := "drop"
	if o.rng.IntN(3) == 0 {
		rule = "reject with tcp reset"
	}
	o.note(o.listed)
	on(o.T, o.lab, pod, "nft", "add table inet bad; add chain inet bad in { type filter hook input priority 0; }; add rule inet bad in tcp dport 8080 tcp flags & (syn | ack) == syn "+rule)
	o.bad[pod] = func() { on(o.T, o.lab, pod, "nft", "delete table inet bad") }
	if last := &o.log[len(o.log)-1]; rule != "drop" {
		last.refusing = true
	}
}

// publish lists pods in the API.
func (o *outages) publish(listed []string) {
	var endpoints []string
	for _, pod := range listed {
		h, err := o.lab.Host(pod)
		if err != nil {
			o.Fatal(err)
		}
		endpoints = append(endpoints, fmt.Sprintf("%v:8080", h.Addrs[0]))
	}
	o.note(outagePods) // until it is in the kernel
	mark := o.proxy.Log().Len()
	write(o.T, o.dir, "web.yaml", plainService("web", "10.96.0.1", "TCP", `sluice/eject: "true"`, endpoints...)+"\n", 0)
	settle(o.T, o.proxy, o.dir, mark)
	o.listed = listed
	o.note(listed)
}

func (o *outages) note(listed []string) {
	refusing := len(o.log) > 0 && o.log[len(o.log)-1].refusing && len(o.bad) > 0
	o.log = append(o.log, outage{time.Now(), listed, refusing})
}

// judge says what is wrong with a connection, given what there was from its beginning to its end.
func (o *outages) judge(c call) error {
	var then []outage
	for i, e := range o.log {
		next := time.Now()
		if i+1 < len(o.log) {
			next = o.log[i+1].at
		}
		if e.at.Before(c.at.Add(c.took)) && next.After(c.at) {
			then = append(then, e)
		}
	}
	refusing := slices.ContainsFunc(then, func(e outage) bool { return e.refusing })
	switch {
	case c.Kind == lab.Refused && refusing:
	case c.Kind != lab.Answered:
		return fmt.Errorf("it is %v, after %v", c.Outcome, c.took)
	case !slices.ContainsFunc(then, func(e outage) bool { return slices.Contains(e.listed, c.By) }):
		return fmt.Errorf("it was led to %s, which was not listed", c.By)
	}
	return nil
}
