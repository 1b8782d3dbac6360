//go:build linux

package soak

import (
	"fmt"
	"testing"
	"time"

	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// longestOutage is how long there is no API server in a long run.
const longestOutage = 10 * time.Minute

// Without an API server for a long time nothing is lost, also if the proxy is killed meanwhile; it
// says that it serves the past, or not yet. When the server is back, everything is caught up with.
func TestLongOutage(t *testing.T) {
	testkit.NotShort(t, "it waits for a while")
	length := 4 * time.Second
	if longRun() {
		length = min(*duration, longestOutage)
	}
	if *only != "" {
		t.Skip("it is no disruption among others")
	}
	s := newSoak(t)
	s.begin()
	s.note("no API server for %v", length)
	s.must(s.hangUp())
	s.must(s.says(verdict.ServingThePast))
	time.Sleep(length / 2)
	s.note("killed and started again")
	s.must(s.end((*lab.Proxy).Kill))
	s.must(s.start(s.ctx))
	s.must(s.says(verdict.NotServing))
	time.Sleep(length / 2)
	s.note("the API server is back")
	s.must(s.serve())
	began := time.Now()
	s.must(s.catchUp())
	s.must(s.says(verdict.Serving))
	s.report.follow("after the outage", time.Since(began))
	s.quiet.Lock()
	defer s.quiet.Unlock()
	s.must(s.traffic.drain())
	s.judge()
	s.compareWithFresh()
	t.Log(s.report.String())
}

// says waits until the proxy says a word of itself.
func (s *soak) says(word verdict.ProxyWord) error {
	return testkit.Poll(followLimit, func() error {
		x, err := askServices(s.ctx, s.node)
		if err == nil && x.proxy != word {
			err = fmt.Errorf("the proxy is said to be %s, not %s", x.proxy, word)
		}
		return err
	})
}
