//go:build linux

package nft

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// FlowTable is an object of a table through which the kernel forwards packets of connections that a rule
// added to it, from where they come in to its devices, past all rules.
type FlowTable struct {
	Name     string
	Priority int32 // at ingress
	// Counter has packets counted for their connections in connection tracking, as those are that take rules.
	Counter bool
	Devices []string
}

// Attributes and flags of flow tables, which package unix lacks.
const (
	flowTableTable = 1
	flowTableName  = 2
	flowTableHook  = 3
	flowTableFlags = 7

	flowTableHookNum      = 1
	flowTableHookPriority = 2
	flowTableHookDevices  = 3

	deviceName = 1

	flowTableCounter = 2

	netdevIngress = 0 // NF_NETDEV_INGRESS

	flowExprTable = 1 // NFTA_FLOW_TABLE_NAME
)

// AddFlowTable adds a flow table. If it exists, these devices are added to those that it has.
func (b *Batch) AddFlowTable(t Table, f FlowTable) {
	b.message(t, unix.NFT_MSG_NEWFLOWTABLE, create, 0, f.message(t))
}

// RemoveDevices removes these devices of a flow table, which has them.
func (b *Batch) RemoveDevices(t Table, f FlowTable) {
	b.message(t, unix.NFT_MSG_DELFLOWTABLE, 0, 0, f.message(t))
}

func (f FlowTable) message(t Table) func(attrs) attrs {
	return func(a attrs) attrs {
		a = a.text(flowTableTable, t.Name).text(flowTableName, f.Name)
		a = a.nested(flowTableHook, func(a attrs) attrs {
			a = a.u32(flowTableHookNum, netdevIngress).u32(flowTableHookPriority, uint32(f.Priority))
			if len(f.Devices) == 0 {
				return a
			}
			return a.nested(flowTableHookDevices, func(a attrs) attrs {
				for _, device := range f.Devices {
					a = a.text(deviceName, device)
				}
				return a
			})
		})
		if f.Counter {
			a = a.u32(flowTableFlags, flowTableCounter)
		}
		return a
	}
}

// FlowTables reads a table's flow tables.
func (c *Conn) FlowTables(ctx context.Context, t Table) ([]FlowTable, error) {
	filter := attrs(nil).text(flowTableTable, t.Name)
	return list(ctx, c, t.Family, unix.NFT_MSG_GETFLOWTABLE, filter, t.in("the flow tables of"), func(a attrs) (FlowTable, bool) {
		hook := a.get(flowTableHook)
		f := FlowTable{Name: a.getText(flowTableName), Priority: int32(hook.getU32(flowTableHookPriority)),
			Counter: a.getU32(flowTableFlags)&flowTableCounter != 0}
		for _, device := range nfnetlink.Attrs(hook.get(flowTableHookDevices)) {
			f.Devices = append(f.Devices, toText(device))
		}
		return f, a.getText(flowTableTable) == t.Name
	})
}

// FlowAdd adds the connection to a flow table. It is for packets that are forwarded, of connections that both
// sides have sent packets of.
func (e Exprs) FlowAdd(flowTable string) Exprs {
	return e.then("flow add @"+flowTable, func(a attrs) attrs {
		return a.expr("flow_offload", func(a attrs) attrs { return a.text(flowExprTable, flowTable) })
	})
}

// Offloaded is a bit of the status of a connection that is in a flow table.
const Offloaded = 1 << 14 // IPS_OFFLOAD

// DNAT is the bit of one whose destination was translated.
const DNAT = ctStatusDNAT

// HasMorePackets matches packets of connections that have had more than that many in both directions together.
// The kernel counts them, from then on, for all new connections.
func (e Exprs) HasMorePackets(than uint64) Exprs {
	const len = 8
	return e.then(fmt.Sprintf("ct packets > %d", than), func(a attrs) attrs {
		r := register(0).number()
		a = ct(unix.NFT_CT_PKTS)(a, 0)
		a = a.expr("byteorder", func(a attrs) attrs {
			a = a.u32(unix.NFTA_BYTEORDER_SREG, r).u32(unix.NFTA_BYTEORDER_DREG, r)
			a = a.u32(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
			return a.u32(unix.NFTA_BYTEORDER_LEN, len).u32(unix.NFTA_BYTEORDER_SIZE, len)
		})
		return a.cmp(unix.NFT_CMP_GT, binary.BigEndian.AppendUint64(nil, than))
	})
}
