package iptables

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"sluice/internal/nft"
)

// nftStamper reads stamps of nftables, and hears from the kernel what others do. Whoever
// writes tables or chains of their own makes another stamp, and nothing has to be listed
// for that.
type nftStamper struct {
	*nft.Conn
	monitor *nft.Monitor
	ended   chan struct{}
	joined  bool // of the goroutine that writes

	mu    sync.Mutex
	heard map[uint32]bool // generations of others, and whether they touched ours
	// joinedAt is the generation when listening began: of those up to it, only a part of
	// the notices may have been heard.
	joinedAt uint32
	// touched is what was heard of the transaction under way; deaf that something of it
	// was lost.
	touched, deaf bool
}

// mostHeard bounds how many generations are remembered.
const mostHeard = 10_000

func newNFTStamper(netns int) (*nftStamper, error) {
	conn, err := nft.Dial(netns, nft.SendBuffer)
	if err != nil {
		return nil, err
	}
	monitor, err := nft.NewMonitor(netns, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &nftStamper{Conn: conn, monitor: monitor, ended: make(chan struct{}), heard: map[uint32]bool{}}
	go s.hear()
	return s, nil
}

func (s *nftStamper) Close() error {
	err := errors.Join(s.monitor.Close(), s.Conn.Close())
	<-s.ended
	return err
}

func (s *nftStamper) hear() {
	defer close(s.ended)
	for {
		switch err := s.monitor.Next(s.notice); {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			return // what is not heard is listed
		}
	}
}

func (s *nftStamper) notice(n nft.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n.Lost:
		s.deaf = true
	case n.Generation == 0:
		s.touched = s.touched || touchesOurs(n)
	default:
		if len(s.heard) >= mostHeard {
			clear(s.heard)
		}
		if !s.deaf {
			s.heard[n.Generation] = s.touched
		}
		s.touched, s.deaf = false, false
	}
}

// builtinChains are those that hooks of ours can be in.
var builtinChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// touchesOurs tells whether a change can concern us. A chain that was renamed comes with
// its new name, so that any chain does.
func touchesOurs(n nft.Notice) bool {
	switch {
	case n.Family != nft.IP && n.Family != nft.IP6, n.Table != nat && n.Table != filter && n.Table != mangle, n.Set != "":
		return false
	}
	return n.Chain == "" || Owns(n.Chain) || slices.Contains(builtinChains, n.Chain)
}

// listen leaves while we write, since the kernel makes a notice of each rule.
func (s *nftStamper) listen(ctx context.Context, on bool) error {
	if on == s.joined {
		return nil
	}
	if !on {
		s.joined = false
		return s.monitor.Leave()
	}
	if err := s.monitor.Join(); err != nil {
		return err
	}
	s.joined = true
	now, err := s.Generation(ctx)
	if err != nil {
		now = math.MaxUint32 // nothing that is heard will be believed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joinedAt = now
	return err
}

// hearingTime is how long a notice may take to be heard.
const hearingTime = 20 * time.Millisecond

func (s *nftStamper) judge(from, to stamp) verdict {
	v := s.judgeNow(from.generation, to.generation)
	if v == unheard {
		time.Sleep(hearingTime)
		v = s.judgeNow(from.generation, to.generation)
	}
	return v
}

func (s *nftStamper) judgeNow(from, to uint32) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := harmless
	for g := from + 1; g != to+1; g++ {
		touched, ok := s.heard[g]
		if !ok || g <= s.joinedAt {
			return unheard
		}
		if touched {
			v = harmful
		}
	}
	return v
}

func (s *nftStamper) stamp(ctx context.Context) (stamp, error) {
	generation, err := s.Generation(ctx)
	return stamp{generation: generation}, err
}

// expected counts our transaction.
func (s *nftStamper) expected(before stamp, _ Table, _ int) stamp {
	before.generation++
	return before
}

func (s *nftStamper) contents(context.Context) (*contents, error) { return nil, nil }

// asleep finds those of the tables that somebody gave the flag dormant, which iptables
// does not know: it lists them as if nothing was.
func (s *nftStamper) asleep(ctx context.Context) (tables []nft.Table, err error) {
	for _, f := range []nft.Family{nft.IP, nft.IP6} {
		all, err := s.Tables(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			if t.Dormant && (t.Name == nat || t.Name == filter) {
				tables = append(tables, t)
			}
		}
	}
	return tables, nil
}

func (s *nftStamper) wake(ctx context.Context, tables []nft.Table) error {
	if len(tables) == 0 {
		return nil
	}
	b := &nft.Batch{}
	for _, t := range tables {
		b.AddTable(t)
	}
	return s.Commit(ctx, b)
}
