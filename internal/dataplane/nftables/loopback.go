//go:build linux

package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// loopbackTableOf returns the name of the table that counts packets to ports at loopback addresses.
func loopbackTableOf(instance string) string { return sideTableOf("loopback", instance) }

const (
	loopbackPorts  = "ports"
	loopbackOutput = "output"
	loopbackRefuse = "refuse"
)

// loopbackCounter keeps one such table for each family.
type loopbackCounter struct {
	conn   *nft.Conn
	reject bool
	tables map[model.Family]*countedPorts
}

type countedPorts struct {
	sideTable[dataplane.LoopbackPort]
	// packets are what the rules say, in the order of protocols, and former what those said that are gone.
	packets, former [len(protocols)]uint64
}

func newLoopbackCounter(name string) *loopbackCounter {
	c := &loopbackCounter{tables: map[model.Family]*countedPorts{}}
	for _, f := range model.Families {
		t := &countedPorts{sideTable: newSideTable(f, name, loopbackPorts, nft.MemberType[dataplane.LoopbackPort]{
			Key: loopbackPortKey,
			Decode: func(d *nft.Decoder) (p dataplane.LoopbackPort) {
				p.Family, p.Protocol = f, model.Protocol(d.Protocol())
				p.Port = d.Port()
				return p
			},
			Compare: func(a, b dataplane.LoopbackPort) int {
				return cmp.Or(int(a.Protocol)-int(b.Protocol), int(a.Port)-int(b.Port))
			},
		})}
		t.create = func(b *nft.Batch) { t.build(b, c.reject) }
		c.tables[f] = t
	}
	return c
}

func loopbackPortKey(a *nft.Arena, p dataplane.LoopbackPort) []byte {
	at := len(*a)
	a.Protocol(byte(p.Protocol))
	a.Port(p.Port)
	return a.Cut(at)
}

// CountLoopback implements dataplane.LoopbackCounter.
func (c *loopbackCounter) CountLoopback(ctx context.Context, ports map[dataplane.LoopbackPort]struct{}, reject bool) error {
	changed := c.reject != reject
	c.reject = reject
	var errs []error
	for f, t := range c.tables {
		wanted := map[dataplane.LoopbackPort]struct{}{}
		for p := range ports {
			if p.Family == f {
				wanted[p] = struct{}{}
			}
		}
		t.known = t.known && !changed
		errs = append(errs, t.follow(ctx, c.conn, wanted))
	}
	return errors.Join(errs...)
}

// build writes the table, without ports. Its rules are in the order of protocols.
func (t *countedPorts) build(b *nft.Batch, reject bool) {
	for i := range t.packets {
		t.former[i], t.packets[i] = t.former[i]+t.packets[i], 0
	}
	b.AddTable(t.Table)
	port := nft.Concat{nft.Protocol, nft.DestPort}
	b.AddSet(t.Table, &nft.Set{Name: loopbackPorts, Key: nft.Type{Parts: port}})
	b.AddChain(t.Table, nft.Chain{Name: loopbackOutput, Type: "filter", Hook: unix.NF_INET_LOCAL_OUT})
	if reject {
		b.AddChain(t.Table, nft.Chain{Name: loopbackRefuse})
		b.AddRule(t.Table, nft.Rule{Chain: loopbackRefuse, Exprs: anyPacket.RejectTCP()})
		b.AddRule(t.Table, nft.Rule{Chain: loopbackRefuse, Exprs: anyPacket.RejectPort(t.nf)})
	}
	for _, p := range protocols {
		e := anyPacket.HasProtocol(byte(p)).New().Within(t.dest, t.loopback).In(loopbackPorts, port).Count()
		if reject {
			e = e.Jump(loopbackRefuse)
		}
		b.AddRule(t.Table, nft.Rule{Chain: loopbackOutput, Exprs: e})
	}
}

// LoopbackPackets implements dataplane.LoopbackCounter.
func (c *loopbackCounter) LoopbackPackets(ctx context.Context) (map[dataplane.LoopbackPackets]uint64, error) {
	packets := map[dataplane.LoopbackPackets]uint64{}
	for f, t := range c.tables {
		if t.exists {
			if err := t.read(ctx, c.conn); err != nil {
				return nil, err
			}
		}
		for i, p := range protocols {
			packets[dataplane.LoopbackPackets{Family: f, Protocol: p}] = t.former[i] + t.packets[i]
		}
	}
	return packets, nil
}

func (t *countedPorts) read(ctx context.Context, conn *nft.Conn) error {
	rules, err := conn.Expressions(ctx, t.Table, loopbackOutput)
	if err != nil {
		return t.lost(err)
	}
	if len(rules) != len(protocols) { // a table that is gone is listed as an empty one
		t.known = false
		return fmt.Errorf("table %s %s is not as it was written", t.Family, t.Name)
	}
	for i, rule := range rules {
		packets := uint64(0)
		for _, e := range rule {
			packets += e.Packets
		}
		if packets < t.packets[i] { // another program reset it
			t.former[i] += t.packets[i]
		}
		t.packets[i] = packets
	}
	return nil
}
