//go:build linux

package nftables

import (
	"fmt"
	"testing"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// What was counted stays counted when the table is made anew, and while nothing is counted.
func TestLoopbackPacketsNeverBecomeLess(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	k.ns.Run(t, "", "ip", "link", "set", "lo", "up")
	of := dataplane.LoopbackPackets{Family: model.IPv4, Protocol: model.UDP}
	follow := func(reject bool, ports ...uint16) {
		t.Helper()
		all := map[dataplane.LoopbackPort]struct{}{}
		for _, port := range ports {
			all[dataplane.LoopbackPort{LoopbackPackets: of, Port: port}] = struct{}{}
		}
		if err := d.CountLoopback(t.Context(), all, reject); err != nil {
			t.Fatal(err)
		}
	}
	sent := uint64(0)
	send := func(packets int) {
		t.Helper()
		k.ns.Run(t, "", "bash", "-ec", fmt.Sprintf("for i in $(seq %d); do echo > /dev/udp/127.0.0.1/30053 || true; done", packets))
		sent += uint64(packets)
	}
	want := func(when string) {
		t.Helper()
		got, err := d.LoopbackPackets(t.Context())
		if err != nil || got[of] != sent {
			t.Errorf("%s: counted %d, %v, want %d", when, got[of], err, sent)
		}
	}
	follow(false, 30053)
	send(2)
	want("at first")
	follow(true, 30053) // with other rules
	send(3)
	want("in a table that was made anew")
	follow(true)
	want("without ports")
	follow(true, 30053)
	k.nft("", "delete table ip sluice-loopback")
	if _, err := d.LoopbackPackets(t.Context()); err == nil {
		t.Error("it is not noticed that the table is gone")
	}
	follow(true, 30053)
	send(4)
	want("after the table was removed")
}
