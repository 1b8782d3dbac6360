//go:build linux

package nft_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
)

var (
	table = nft.Table{Family: nft.IP, Name: "example"}
	// backends maps a port to the address and port to send its connections to.
	backends = &nft.Set{
		Name: "backends",
		Key:  nft.Type{Parts: nft.Concat{nft.Protocol, nft.DestPort}, Typeof: true},
		Data: nft.Type{Parts: nft.Concat{nft.DestIP4, nft.DestPort}, Typeof: true},
	}
	prerouting = nft.Chain{Name: "prerouting", Type: "nat", Hook: unix.NF_INET_PRE_ROUTING, Priority: -100}
	dnat       = nft.Rule{
		Chain:     prerouting.Name,
		Exprs:     nft.Exprs{}.ToLocal().Count().DNATMap(nft.IP, backends.Name, backends.Key.Parts),
		Protocols: true,
	}
)

func element(port uint16, to netip.AddrPort) nft.Element {
	var a nft.Arena
	a.Protocol(unix.IPPROTO_TCP)
	a.Port(port)
	key := len(a)
	a.Addr(to.Addr())
	a.Port(to.Port())
	return nft.Element{Key: a[:key], Data: a.Cut(key)}
}

// A Listing shows a table as nft(8) does, without a kernel.
func Example() {
	l := nft.NewListing(os.Stdout)
	l.Table(table, func() {
		l.Set(backends, []nft.Element{
			element(80, netip.MustParseAddrPort("192.0.2.1:8080")),
			element(443, netip.MustParseAddrPort("192.0.2.2:8443")),
		})
		l.Chain(prerouting, []nft.Rule{dnat})
	})
	if err := l.Flush(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// table ip example {
	// 	map backends {
	// 		typeof meta l4proto . th dport : ip daddr . th dport
	// 		elements = { tcp . 80 : 192.0.2.1 . 8080,
	// 			     tcp . 443 : 192.0.2.2 . 8443 }
	// 	}
	//
	// 	chain prerouting {
	// 		type nat hook prerouting priority dstnat; policy accept;
	// 		meta l4proto { tcp, udp, sctp } fib daddr type local counter packets 0 bytes 0 dnat ip to meta l4proto . th dport map @backends
	// 	}
	// }
}

// A Batch is one transaction: see Conn.Commit.
func ExampleBatch() {
	b := &nft.Batch{}
	b.AddTable(table)
	b.AddSet(table, backends)
	for port := range uint16(1000) {
		e := element(port, netip.MustParseAddrPort("192.0.2.1:8080"))
		b.AddElement(table, backends.Name, &e, 0)
	}
	b.AddChain(table, prerouting)
	b.AddRule(table, dnat)
	fmt.Println(b.Elements(), "elements")
	// Output: 1000 elements
}

func ExampleConn_Commit() {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	b := &nft.Batch{}
	b.AddTable(table)
	b.AddChain(table, nft.Chain{Name: "input", Type: "filter", Hook: unix.NF_INET_LOCAL_IN})
	b.AddRule(table, nft.Rule{Chain: "input", Exprs: nft.Exprs{}.New().HasProtocol(unix.IPPROTO_UDP).Count()})
	if err := conn.Commit(context.Background(), b); err != nil {
		log.Print(err)
	}
}

// Members writes only what changed in a set that several users share.
func ExampleMembers() {
	addresses := nft.MemberType[netip.Addr]{
		Key: func(a *nft.Arena, ip netip.Addr) []byte {
			at := len(*a)
			a.Addr(ip)
			return a.Cut(at)
		},
		Decode:  (*nft.Decoder).Addr,
		Compare: netip.Addr.Compare,
	}
	m := nft.NewMembers(table, "addresses", addresses, 0)
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	m.Hold(one)
	m.Hold(one)
	m.Hold(two)
	fmt.Println("missing:", m.Missing(10))

	b := &nft.Batch{}
	m.Add(b, 10)
	m.Added() // after b was committed
	m.Release(one)
	m.Release(two)
	fmt.Println("surplus:", m.Surplus(10), "still held:", m.Has(one))
	// Output:
	// missing: 2
	// surplus: 1 still held: true
}
