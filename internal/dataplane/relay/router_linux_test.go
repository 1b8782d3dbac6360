package relay

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"sluice/internal/kernel/ctnetlink"
	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

// Packets may arrive while a Router is only beginning to listen, as on a port that an earlier
// process had.
func TestRouterTakesPacketsFromTheFirstMomentOn(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run(t, "", "ip", "link", "set", "lo", "up")
	conn, err := ctnetlink.Dial(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	at := netip.MustParseAddrPort("127.0.0.1:4000")
	var client *net.UDPConn
	if err := ns.Do(func() (err error) { client, err = net.ListenUDP("udp4", nil); return err }); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			if _, err := client.WriteToUDPAddrPort([]byte("early"), at); err != nil {
				return // it is closed
			}
		}
	})
	defer sending.Wait()
	defer client.Close()
	refused := make(chan struct{}, 1)
	o := Options{Address: at, Protocol: model.UDP, NetNS: ns.FD(), Refused: func(Refusal) {
		select {
		case refused <- struct{}{}:
		default:
		}
	}}
	for range 20 {
		r, err := Listen(t.Context(), o, Directory{Translation: conn})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Receive(t, refused, "a packet of no connection") // nothing led it here
		r.Close()
		r.Wait()
	}
}
