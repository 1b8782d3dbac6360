package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/model"
	"sluice/internal/nfnetlink"
	"sluice/internal/plan"
)

// namespace is a network namespace of a test's own, with a connection tracking
// table of its own.
type namespace struct {
	t  testing.TB
	fd netns.NsHandle
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{t: t}
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, and nobody
		// else gets to run in its namespace.
		runtime.LockOSThread()
		var err error
		n.fd, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("making a network namespace (tests of the kernel need root): %v", err)
	}
	t.Cleanup(func() { n.fd.Close() })
	return n
}

// do runs f in the namespace.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(n.fd); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

// shell runs commands in the namespace.
func (n *namespace) shell(commands string) {
	n.t.Helper()
	n.do(func() error {
		out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
		if err != nil {
			n.t.Logf("%s\n%s", commands, out)
		}
		return err
	})
}

// entry is one to be made in the table. Each has a client of its own.
type entry struct {
	name     string
	to, by   string
	protocol model.Protocol
	zone     uint16
}

// seen is how entries describes it.
func (e entry) seen() string {
	return fmt.Sprintf("%v to %s by %s, zoned %v", e.protocol, e.to, e.by, e.zone != 0)
}

const (
	newEntry   = unix.NFNL_SUBSYS_CTNETLINK << 8 // IPCTNL_MSG_CT_NEW
	ctaTimeout = 7
)

// create makes entries, as if there had been traffic.
func (n *namespace) create(entries ...entry) {
	n.t.Helper()
	socket, err := nfnetlink.Dial(int(n.fd))
	if err != nil {
		n.t.Fatal(err)
	}
	defer socket.Close()
	for seq, e := range entries {
		to, by := addrPort(e.to), addrPort(e.by)
		ip, family := addr("198.51.100.1"), uint8(unix.NFPROTO_IPV4)
		if to.Addr().Is6() {
			ip, family = addr("2001:db8:9::1"), unix.NFPROTO_IPV6
		}
		client := netip.AddrPortFrom(ip, uint16(seq))
		msg := nfnetlink.AppendHeader(nil, newEntry, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, family, 0)
		msg = nfnetlink.AppendAttr(msg, nfnetlink.Nested|ctaTupleOrig, encodeTuple(client, to, e.protocol))
		msg = nfnetlink.AppendAttr(msg, nfnetlink.Nested|ctaTupleReply, encodeTuple(by, client, e.protocol))
		msg = nfnetlink.AppendAttr(msg, ctaTimeout, binary.BigEndian.AppendUint32(nil, 3600))
		if e.zone != 0 {
			msg = nfnetlink.AppendAttr(msg, ctaZone, binary.BigEndian.AppendUint16(nil, e.zone))
		}
		nfnetlink.EndMessage(msg, 0)
		nfnetlink.SetSeq(msg, 0, uint32(seq+1))
		if err := socket.Send(msg); err != nil {
			n.t.Fatal(err)
		}
		if err := socket.Receive(nfnetlink.AckError); err != nil {
			n.t.Fatalf("making %+v: %v", e, err)
		}
	}
}

// entries lists what is in the table.
func (n *namespace) entries() []string {
	n.t.Helper()
	var list []string
	_, err := kernel{int(n.fd)}.sweep(n.t.Context(), protocols{model.UDP, model.TCP}, func(f *flow) bool {
		list = append(list, fmt.Sprintf("%v to %v by %v, zoned %v", f.protocol, f.to, f.by, f.zoned))
		return false
	})
	if err != nil {
		n.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// reconciler runs one in the namespace, until the test ends.
func (n *namespace) reconciler() *Reconciler {
	n.t.Helper()
	r := New(Options{Logger: logr.Discard(), NetNS: int(n.fd), Desired: func(read func(*plan.Desired)) { read(&plan.Desired{}) }})
	done := make(chan error, 1)
	go func() { done <- r.Run(n.t.Context()) }()
	n.t.Cleanup(func() {
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	return r
}

// commit hands over a change, and waits for the pass that it needs.
func commit(t testing.TB, r *Reconciler, change *plan.Change) {
	t.Helper()
	before := r.Stats()
	r.Committed(change, dataplane.Result{}, true)
	for r.Stats().Passes == before.Passes {
		if t.Context().Err() != nil {
			t.Fatal("no pass")
		}
		time.Sleep(time.Millisecond)
	}
	if after := r.Stats(); after.Failures != before.Failures {
		t.Fatalf("a pass failed: %+v", after)
	}
}
