//go:build linux

package iptables

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
)

// nftMonitor reads the generation of nftables, which any write increments, and
// listens to notifications to distinguish writes to our chains from other writes.
type nftMonitor struct {
	*nft.Conn
	monitor *nft.Monitor
	ours    func(chain string) bool
	ended   chan struct{}
	joined  bool // used by the goroutine that writes

	mu    sync.Mutex
	heard map[uint32]bool // whether generations of others touched our chains
	// joinedAt is the generation when listening began: notifications of those up to it
	// may be incomplete.
	joinedAt uint32
	// touched is of the transaction being received; lost says that some of its
	// notifications are missing.
	touched, lost bool
}

// maxHeard bounds how many generations are kept.
const maxHeard = 10_000

func newNFTMonitor(netns int, ours func(chain string) bool) (*nftMonitor, error) {
	conn, err := nft.Dial(netns, nft.SendBuffer)
	if err != nil {
		return nil, err
	}
	monitor, err := nft.NewMonitor(netns, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	m := &nftMonitor{Conn: conn, monitor: monitor, ours: ours, ended: make(chan struct{}), heard: map[uint32]bool{}}
	go m.receive()
	return m, nil
}

func (m *nftMonitor) Close() error {
	err := errors.Join(m.monitor.Close(), m.Conn.Close())
	<-m.ended
	return err
}

func (m *nftMonitor) receive() {
	defer close(m.ended)
	for {
		switch err := m.monitor.Next(m.notice); {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			return // from now on tables are listed
		}
	}
}

func (m *nftMonitor) notice(n nft.Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case n.Lost:
		m.lost = true
	case n.Generation == 0:
		m.touched = m.touched || m.touchesOurs(n)
	default:
		if len(m.heard) >= maxHeard {
			clear(m.heard)
		}
		if !m.lost {
			m.heard[n.Generation] = m.touched
		}
		m.touched, m.lost = false, false
	}
}

// touchesOurs reports whether a change concerns our chains. The notification of a
// renamed chain has its new name.
func (m *nftMonitor) touchesOurs(n nft.Notice) bool {
	if n.Family != nft.IP && n.Family != nft.IP6 || !slices.Contains(TableNames, n.Table) || n.Set != "" {
		return false
	}
	return n.Chain == "" || m.ours(n.Chain) || slices.Contains(xtables.BuiltinChains[:], n.Chain)
}

// Listen leaves the multicast group during our own writes, for which the kernel
// would create a notification per rule.
func (m *nftMonitor) Listen(ctx context.Context, on bool) error {
	if on == m.joined {
		return nil
	}
	if !on {
		m.joined = false
		return m.monitor.Leave()
	}
	if err := m.monitor.Join(); err != nil {
		return err
	}
	m.joined = true
	now, err := m.Conn.Generation(ctx)
	if err != nil {
		now = math.MaxUint32 // no notification will be believed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joinedAt = now
	return err
}

// noticeDelay is how long a notification may take to be received.
const noticeDelay = 20 * time.Millisecond

func (m *nftMonitor) Judge(from, to Generation) Verdict {
	v := m.judgeNow(from.NFT, to.NFT)
	if v == Unknown {
		time.Sleep(noticeDelay)
		v = m.judgeNow(from.NFT, to.NFT)
	}
	return v
}

func (m *nftMonitor) judgeNow(from, to uint32) Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := Harmless
	for g := from + 1; g != to+1; g++ {
		touched, ok := m.heard[g]
		if !ok || g <= m.joinedAt {
			return Unknown
		}
		if touched {
			v = Harmful
		}
	}
	return v
}

func (m *nftMonitor) Generation(ctx context.Context) (Generation, error) {
	generation, err := m.Conn.Generation(ctx)
	return Generation{NFT: generation}, err
}

// Expected counts our transaction.
func (m *nftMonitor) Expected(before Generation, _ Table, _ int) Generation {
	before.NFT++
	return before
}

func (m *nftMonitor) Checksums(context.Context) (*Checksums, error) { return nil, nil }

// Dormant finds tables with the flag dormant. iptables, which does not know the
// flag, lists them as if they were in use.
func (m *nftMonitor) Dormant(ctx context.Context) (tables []nft.Table, err error) {
	for _, f := range []nft.Family{nft.IP, nft.IP6} {
		all, err := m.Tables(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			if t.Dormant && (t.Name == NAT || t.Name == Filter) {
				tables = append(tables, t)
			}
		}
	}
	return tables, nil
}

func (m *nftMonitor) Wake(ctx context.Context, tables []nft.Table) error {
	if len(tables) == 0 {
		return nil
	}
	b := &nft.Batch{}
	for _, t := range tables {
		b.AddTable(t)
	}
	return m.Commit(ctx, b)
}
