package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sluice/test/lab"
)

// soon is less than the 45 s that client-go takes to notice that packets vanish,
// and a multiple of what the proxy takes.
const soon = 35 * time.Second

// Packets to and from the API server vanish without an error, as when a router
// fails. The proxy notices, and gets changes soon after the path is back; also if
// something in between answers for a server that does not.
func TestBlackHoleIsNoticedSoon(t *testing.T) {
	s := start(t)
	web := s.create("web", "pod1")
	s.expect("before", answered(clusterFlows(web), "pod1"))

	const message = "Cannot reach the API server"
	remove := s.blackHole()
	mail := s.create("mail", "pod3")
	s.within(soon, "the black hole is noticed", func(context.Context) error { return s.proxy.Logged(message) })
	remove()
	s.expectWithin(soon, "after the black hole", answered(clusterFlows(mail), "pod3"))

	// Existing connections stay silent forever, new ones work.
	s.tunnel.Forget()
	post := s.create("post", "remote1")
	s.expectWithin(soon, "after connections were forgotten", answered(clusterFlows(post), "remote1"))
}

// blackHole makes node1 drop packets to and from the API server, until remove is
// called.
func (s *site) blackHole() (remove func()) {
	s.Helper()
	port := s.server.Addr().Port()
	s.nft("add table inet blackhole")
	for _, hook := range []string{"input", "output"} {
		s.nft(fmt.Sprintf("add chain inet blackhole %s { type filter hook %s priority -300; }", hook, hook))
		s.nft(fmt.Sprintf("add rule inet blackhole %s tcp dport %d drop", hook, port))
		s.nft(fmt.Sprintf("add rule inet blackhole %s tcp sport %d drop", hook, port))
	}
	return func() { s.nft("delete table inet blackhole") }
}

func (s *site) nft(command string) {
	s.Helper()
	if _, err := s.host("node1").Run(s.Context(), lab.Command{Args: []string{"nft", command}}); err != nil {
		s.Fatal(err)
	}
}
