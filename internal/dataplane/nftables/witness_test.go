//go:build linux

package nftables

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/testkit"
)

// What becomes of connections is noticed while their endpoints are watched, and the table is there no longer.
func TestWitness(t *testing.T) {
	k := newKernel(t)
	d := k.dataplane()
	k.ns.Run(t, "", "sh", "-ec", `ip link set lo up
		nft add table inet dark
		nft 'add chain inet dark in { type filter hook input priority 10; }'
		nft add rule inet dark in tcp dport 81 drop`)
	for _, ip := range []string{"127.0.0.1", "[::1]"} {
		target := func(port string, p model.Protocol) dataplane.Target {
			return dataplane.Target{AddrPort: netip.MustParseAddrPort(ip + ":" + port), Protocol: p}
		}
		silent, refusing, answering := target("81", model.TCP), target("82", model.TCP), target("83", model.TCP)
		closed, echoing, foreign := target("84", model.UDP), target("85", model.UDP), target("86", model.TCP)
		watched := map[dataplane.Target]dataplane.OnTrial{silent: true, refusing: false, answering: true, closed: true, echoing: false}
		if err := d.Watch(t.Context(), watched); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := k.ns.Do(func() error { return converse(silent, refusing, answering, closed, echoing, foreign) }); err != nil {
			t.Fatal(err)
		}
		got := map[dataplane.Target]dataplane.Failure{}
		testkit.Eventually(t, func() error { // a packet is repeated after a second
			failures, err := d.Failures(t.Context())
			for _, f := range failures {
				got[f.Target] = f
			}
			if err == nil && len(got) < 3 {
				err = errors.New("too few failures")
			}
			return err
		})
		for at, refused := range map[dataplane.Target]bool{silent: false, refusing: true, closed: true} {
			f := got[at]
			if f.Packets == 0 || f.Refused != refused || f.Client != at.Addr() || f.At.Before(begun.Add(-time.Second)) || f.At.After(time.Now().Add(time.Second)) {
				t.Errorf("%v: noticed %+v", at, f)
			}
		}
		if len(got) != 3 {
			t.Errorf("noticed %v", got)
		}
		seen, err := d.Seen(t.Context(), []dataplane.Target{silent, refusing, answering, closed, echoing, foreign})
		if err != nil {
			t.Fatal(err)
		}
		since := func(when time.Time) bool { return !when.IsZero() && !when.Before(begun.Add(-time.Second)) }
		for at, want := range map[dataplane.Target]bool{answering: true, echoing: true, silent: false, refusing: false, closed: false, foreign: false} {
			if s := seen[at]; since(s.Answered) != want || s.Answered.IsZero() == want || since(s.Tried) != bool(watched[at]) {
				t.Errorf("%v: seen %+v", at, s)
			}
		}
		// What another program changes is mended.
		table := fmt.Sprintf("%s sluice-watch", layouts[model.FamilyOf(silent.Addr())].nf)
		for _, change := range []string{"flush chain T prerouting", "delete table T", "flush set T watched", "flush set T on-trial",
			"flush chain T output; add rule T output accept; add rule T output tcp flags syn goto leaving; add rule T output accept"} {
			k.nft("", strings.ReplaceAll(change, "T", table))
			if err := d.Watch(t.Context(), watched); err != nil {
				t.Fatal(err)
			}
			rules := k.nft("", "list chain "+table+" "+"prerouting") + k.nft("", "list chain "+table+" "+"output")
			for _, set := range []string{"watched", "on-trial"} {
				if elements := k.nft("", "list set "+table+" "+set); !strings.Contains(elements, ". 81") {
					t.Errorf("after %q there are the elements\n%s", change, elements)
				}
			}
			if strings.Count(rules, "goto arriving") != 1 || strings.Count(rules, "goto leaving") != 1 || strings.Contains(rules, "\t\taccept") {
				t.Errorf("after %q there are the rules\n%s", change, rules)
			}
		}
	}
	if err := d.Watch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if tables := k.nft("", "list", "tables"); strings.Contains(tables, "sluice") {
		t.Errorf("left are %s", tables)
	}
	if failures, err := d.Failures(t.Context()); err != nil || len(failures) > 0 {
		t.Errorf("%v, %v", failures, err)
	}
}

// converse connects to each of them once.
func converse(silent, refusing, answering, closed, echoing, foreign dataplane.Target) error {
	listener, err := net.Listen("tcp", answering.String())
	if err != nil {
		return err
	}
	defer listener.Close()
	echo, err := net.ListenPacket("udp", echoing.String())
	if err != nil {
		return err
	}
	defer echo.Close()
	// The socket of one that is silent stays open, so that its packet is repeated.
	fd, err := connecting(silent)
	if err != nil {
		return err
	}
	time.AfterFunc(testkit.Timeout, func() { _ = syscall.Close(fd) })
	for _, at := range []dataplane.Target{refusing, answering, foreign} {
		if c, err := net.Dial("tcp", at.String()); err == nil {
			c.Close()
		}
	}
	for _, at := range []dataplane.Target{closed, echoing} {
		c, err := net.Dial("udp", at.String())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
	}
	buffer := make([]byte, 1)
	_, from, err := echo.ReadFrom(buffer)
	if err == nil {
		_, err = echo.WriteTo(buffer, from)
	}
	return err
}

// connecting returns a socket that begins to connect.
func connecting(at dataplane.Target) (int, error) {
	family, to := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{Port: int(at.Port()), Addr: [4]byte{127, 0, 0, 1}})
	if at.Addr().Is6() {
		family, to = syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.Connect(fd, to); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		return 0, err
	}
	return fd, nil
}
